"""Policies for others: small copies with a model card, sent to the Hugging Face Hub and fetched from it."""

from genpolicy.cli import Command

PACK = Command("copy a policy for others: half the size, with a model card", "genpolicy_hub.commands:add_pack", "share")
PUSH = Command("upload a policy to the Hugging Face Hub", "genpolicy_hub.commands:add_push", "share")
PULL = Command("download a policy from the Hugging Face Hub", "genpolicy_hub.commands:add_pull", "share")

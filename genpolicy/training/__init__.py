"""Training: ``genpolicy.training.loop.train(config)``; ``genpolicy train`` is the same from the command line."""

from genpolicy.cli import Command

TRAIN = Command("train a policy from a configuration", "genpolicy.training.commands:add_parser")

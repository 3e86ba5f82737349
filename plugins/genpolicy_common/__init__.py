"""What applications share: labelled positions, tables of results, the store of unfinished work, and
the small subcommands.
"""

from genpolicy.cli import Command

COMPLETION = Command("print a completion script for your shell", "genpolicy_common.completion:add_parser")
CONFIGS = Command("list the shipped configurations, or print one", "genpolicy_common.configs:add_parser", "train")
DEMO = Command(
    "train small policies on a shipped sample, evaluate them, play a game", "genpolicy_common.demo:add_parser", "train"
)
ENV = Command("print the versions that a bug report needs", "genpolicy_common.env:add_parser")
NEW_GAME = Command("write the package of a new game to start from", "genpolicy_common.new_game:add_parser", "extend")

"""What applications share: labelled positions, tables of results, the store of unfinished work, and
the small subcommands.
"""

from genpolicy.cli import Command

COMPLETION = Command("complete what is typed in a shell", "genpolicy_common.completion:add_parser")
CONFIGS = Command("list the shipped configurations, or print one", "genpolicy_common.configs:add_parser", "train")
DEMO = Command(
    "train small policies on a shipped sample, evaluate them, play a game", "genpolicy_common.demo:add_parser", "train"
)
ENV = Command("say what a report of a fault needs to know", "genpolicy_common.env:add_parser")
NEW_GAME = Command(
    "write the package of a new game, to be changed into your own", "genpolicy_common.new_game:add_parser", "extend"
)

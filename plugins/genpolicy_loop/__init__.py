"""Self-play from nothing: generations of games, Reanalyse, training and a gate."""

from genpolicy.cli import Command

LOOP = Command("learn a game from nothing by self-play", "genpolicy_loop.commands:add_parser", "train")

"""Matches and tournaments between policies and engines, and Elo ratings."""

from genpolicy.cli import Command

TOURNAMENT = Command(
    "let policies and engines play each other, and rate them", "genpolicy_arena.commands:add_parser", "evaluate"
)
RATINGS = Command("rate players from files of games", "genpolicy_arena.ratings_command:add_parser", "evaluate")

"""Measuring policies: action accuracy, futures, puzzles, latency."""

from genpolicy.cli import Command

EVALUATE = Command("measure policies on a data set", "genpolicy_evaluation.commands:add_parser", "evaluate")

"""Runs experiments: one description, many runs, one table and its plots."""

from genpolicy.cli import Command

EXPERIMENT = Command("run an experiment file and tabulate it", "genpolicy_experiments.commands:add_parser", "evaluate")

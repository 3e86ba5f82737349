"""Pig, a game of dice for two, and its exact solution: the smallest game with chance."""

from genpolicy_pig.game import PigGame

__all__ = ["PigGame"]

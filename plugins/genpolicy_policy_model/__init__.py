"""Learned models of a game that a tree search can use instead of its rules: see docs/learned-models.md."""

"""A policy behind UCI or USI: ``genpolicy engine``. See ``docs/engine.md``."""

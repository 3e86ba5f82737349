"""Tournaments: openings, matches of several games at once, adjudication, results that survive a kill, crosstables."""

"""Makes data sets: import, labels, self-play, export."""

from genpolicy.cli import Command

DATA = Command("make, label, export and inspect data sets", "genpolicy_labelling.commands:add_parser", "data")

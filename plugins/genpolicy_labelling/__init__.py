"""Makes data sets: import, labels, self-play, export."""

from genpolicy.cli import Command

AFTERSTATES = Command("positions after valued moves", "genpolicy_labelling.afterstates:add_parser", "data")
DATA = Command("make, label, export and inspect data sets", "genpolicy_labelling.commands:add_parser", "data")
PLAYOUTS = Command("label positions of random games", "genpolicy_labelling.playouts:add_parser", "data")

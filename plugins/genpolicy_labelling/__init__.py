"""Making data sets: import, labels, self-play, export."""

from genpolicy.cli import Command

DATA = Command("make, import, label and look at data sets", "genpolicy_labelling.commands:add_parser")

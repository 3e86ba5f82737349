"""Playing with a policy: in the terminal, in a browser, in any UCI or USI program; and pictures of its plans."""

from genpolicy.cli import Command

PLAY = Command("play against a policy in the terminal", "genpolicy_play.commands:add_parser", "play")
SHOW = Command("draw what a policy imagines, as SVG, PNG or GIF", "genpolicy_play.show.command:add_parser", "play")
ENGINE = Command("serve a policy to a GUI, as a UCI or USI engine", "genpolicy_play.engine.command:add_parser", "play")
WEB = Command("play in the browser and watch policies think", "genpolicy_play.web.command:add_parser", "play")
GALLERY = Command("record dreams on one page that needs no server", "genpolicy_play.gallery.command:add_parser", "play")

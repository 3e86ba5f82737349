"""``genpolicy web``: a page to play against policies and to look into them, served on this computer."""

"""``genpolicy web``: a page to play against policies and watch them think, served on this computer."""

"""``genpolicy gallery``: recorded dreams on one page that needs no server."""

"""Pictures of what a policy imagines in a position, for a paper or a README (``genpolicy show``)."""

"""Alpha-beta search: a policy, an oracle, and the search itself with an evaluator or a comparator at its leaves."""

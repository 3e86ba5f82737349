"""Engines over UCI and USI: the client, and an engine as an oracle and as a policy."""

"""Attention biases of the Leela Chess Zero line of transformers: ``shaw``, ``smolgen`` and ``templates``."""

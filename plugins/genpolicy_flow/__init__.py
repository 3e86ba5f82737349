"""Discrete flow matching (Gat et al. 2024, arXiv:2407.15595): the process ``flow`` and the sampler ``flow``."""

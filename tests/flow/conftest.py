"""The brute-force vectors of diffusion, for the formulas of flow matching."""

from tests.diffusion.conftest import pairs, toy, vectors

__all__ = ["pairs", "toy", "vectors"]

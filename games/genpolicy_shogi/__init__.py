"""Shogi for genpolicy, on the PyPI package ``cshogi``.

SPDX-License-Identifier: GPL-3.0-or-later (cshogi is GPL-3; so is this package).
"""

from genpolicy_shogi.game import ShogiGame

__all__ = ["ShogiGame"]

"""Chess for genpolicy, on the PyPI package ``chess``.

SPDX-License-Identifier: GPL-3.0-or-later (python-chess is GPL-3; so is this package).
"""

from genpolicy_chess.game import ChessGame

__all__ = ["ChessGame"]

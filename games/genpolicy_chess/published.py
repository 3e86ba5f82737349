"""What Ye et al. 2025 (arXiv:2502.19805) report in Table 2, to stand beside our own figures."""

from __future__ import annotations

from genpolicy.game import PublishedResult

_SOURCE = "Ye et al. 2025, arXiv:2502.19805, Table 2"
# Policy: action accuracy, puzzles solved, Elo; trained on the positions of 10k games, then of 100k.
_TABLE = {
    "S-A": ((22.10, 3.95, 1075), (36.58, 20.83, 1467)),
    "S-V": ((21.45, 12.20, 1028), (28.89, 17.42, 1078)),
    "SA-V": ((31.50, 12.74, 1294), (39.76, 24.25, 1521)),
    "MCTS-100": ((27.34, 6.85, 1186), (38.05, 20.71, 1469)),
    "DiffuSearch": ((41.31, 39.49, 1728), (48.66, 58.46, 1995)),
}

PUBLISHED = (
    PublishedResult("Stockfish 16", "", _SOURCE, 100.0, 99.10, 2689.0),
    *(
        PublishedResult(policy, games, _SOURCE, accuracy, puzzles, float(elo))
        for index, games in enumerate(("10k games", "100k games"))
        for policy, rows in _TABLE.items()
        for accuracy, puzzles, elo in [rows[index]]
    ),
)
"""Stockfish, which labelled the positions, then the table's two halves."""

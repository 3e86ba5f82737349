"""The words in which the two engine protocols differ; everything else of the server is the same for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Dialect:
    """What one protocol says differently from the other."""

    hello: str
    hello_answer: str
    clocks: tuple[str, str]
    """Prefix of the clock words (``wtime``, ``winc``) of player 0 and of player 1."""
    no_move: str
    """What ``bestmove`` says where there is no move."""
    win: str | None
    """What ``bestmove`` says where the player to move wins by declaring so; None: the protocol has no word for it."""
    mate_in_plies: bool
    """Mates are counted in plies, not in moves of the player who mates."""
    wdl: bool
    """Whether ``info`` may carry ``wdl``."""
    blanks: bool
    """Whether names of options may hold blanks."""
    mate_answer: str | None
    """What answers ``go mate``; None: ``bestmove``."""
    understood: tuple[str, ...]
    """Options that a GUI may set without their being declared, in lower case; they change nothing here."""

    def spelt(self, name: str) -> str:
        """The name of an option as this protocol can write it."""
        return name if self.blanks else name.replace(" ", "_")


UCI = Dialect(
    hello="uci",
    hello_answer="uciok",
    clocks=("w", "b"),
    no_move="(none)",
    win=None,
    mate_in_plies=False,
    wdl=True,
    blanks=True,
    mate_answer=None,
    understood=("hash", "ownbook", "uci_analysemode", "uci_opponent", "uci_variant", "uci_chess960", "clear hash"),
)
USI = Dialect(
    hello="usi",
    hello_answer="usiok",
    clocks=("b", "w"),
    no_move="resign",
    win="win",
    mate_in_plies=True,
    wdl=False,
    blanks=False,
    mate_answer="checkmate",
    understood=("usi_hash", "usi_ponder", "usi_ownbook", "usi_analysemode", "usi_opponent", "usi_variant"),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({"uci": UCI, "usi": USI})
"""By ``Game.protocol``."""

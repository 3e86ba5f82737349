"""Names of openings, by the positions that their moves lead to, so that a transposition has the same name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import chess

from genpolicy_chess.moves import MOVES

_LINES = """
e4: King's Pawn Game
e4 e5: Open Game
e4 e5 f4: King's Gambit
e4 e5 f4 exf4: King's Gambit Accepted
e4 e5 f4 Bc5: King's Gambit Declined, Classical Variation
e4 e5 f4 d5: King's Gambit, Falkbeer Countergambit
e4 e5 Nc3: Vienna Game
e4 e5 Nc3 Nf6 f4: Vienna Gambit
e4 e5 Bc4: Bishop's Opening
e4 e5 d4: Centre Game
e4 e5 d4 exd4 c3: Danish Gambit
e4 e5 Qh5: Wayward Queen Attack
e4 e5 Nf3: King's Knight Opening
e4 e5 Nf3 f6: Damiano Defence
e4 e5 Nf3 d6: Philidor Defence
e4 e5 Nf3 Nf6: Petrov's Defence
e4 e5 Nf3 Nf6 Nxe5 d6 Nf3 Nxe4: Petrov's Defence, Classical Attack
e4 e5 Nf3 f5: Latvian Gambit
e4 e5 Nf3 d5: Elephant Gambit
e4 e5 Nf3 Nc6: King's Knight Opening, Normal Variation
e4 e5 Nf3 Nc6 c3: Ponziani Opening
e4 e5 Nf3 Nc6 d4: Scotch Game
e4 e5 Nf3 Nc6 d4 exd4 Bc4: Scotch Gambit
e4 e5 Nf3 Nc6 d4 exd4 c3: Göring Gambit
e4 e5 Nf3 Nc6 Nc3: Three Knights Opening
e4 e5 Nf3 Nc6 Nc3 Nf6: Four Knights Game
e4 e5 Nf3 Nc6 Nc3 Nf6 Bb5: Four Knights Game, Spanish Variation
e4 e5 Nf3 Nc6 Nc3 Nf6 d4: Four Knights Game, Scotch Variation
e4 e5 Nf3 Nc6 Bc4: Italian Game
e4 e5 Nf3 Nc6 Bc4 Be7: Hungarian Defence
e4 e5 Nf3 Nc6 Bc4 Nf6: Two Knights Defence
e4 e5 Nf3 Nc6 Bc4 Nf6 Ng5: Two Knights Defence, Knight Attack
e4 e5 Nf3 Nc6 Bc4 Nf6 Ng5 Bc5: Two Knights Defence, Traxler Counterattack
e4 e5 Nf3 Nc6 Bc4 Nf6 Ng5 d5 exd5 Nxd5 Nxf7: Two Knights Defence, Fried Liver Attack
e4 e5 Nf3 Nc6 Bc4 Bc5: Giuoco Piano
e4 e5 Nf3 Nc6 Bc4 Bc5 d3: Giuoco Pianissimo
e4 e5 Nf3 Nc6 Bc4 Bc5 b4: Evans Gambit
e4 e5 Nf3 Nc6 Bc4 Nd4: Blackburne Shilling Gambit
e4 e5 Nf3 Nc6 Bb5: Ruy Lopez
e4 e5 Nf3 Nc6 Bb5 Nf6: Ruy Lopez, Berlin Defence
e4 e5 Nf3 Nc6 Bb5 f5: Ruy Lopez, Schliemann Defence
e4 e5 Nf3 Nc6 Bb5 d6: Ruy Lopez, Steinitz Defence
e4 e5 Nf3 Nc6 Bb5 Nd4: Ruy Lopez, Bird's Defence
e4 e5 Nf3 Nc6 Bb5 Bc5: Ruy Lopez, Classical Defence
e4 e5 Nf3 Nc6 Bb5 a6: Ruy Lopez, Morphy Defence
e4 e5 Nf3 Nc6 Bb5 a6 Bxc6: Ruy Lopez, Exchange Variation
e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7: Ruy Lopez, Closed
e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Nxe4: Ruy Lopez, Open
e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7 Re1 b5 Bb3 O-O c3 d5: Ruy Lopez, Marshall Attack
e4 c5: Sicilian Defence
e4 c5 c3: Sicilian Defence, Alapin Variation
e4 c5 d4: Sicilian Defence, Smith-Morra Gambit
e4 c5 d4 cxd4 c3: Sicilian Defence, Smith-Morra Gambit
e4 c5 Nc3: Sicilian Defence, Closed
e4 c5 f4: Sicilian Defence, McDonnell Attack
e4 c5 b4: Sicilian Defence, Wing Gambit
e4 c5 Nf3 d6: Sicilian Defence, Modern Variations
e4 c5 Nf3 d6 Bb5+: Sicilian Defence, Moscow Variation
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3: Sicilian Defence, Open
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 a6: Sicilian Defence, Najdorf Variation
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 a6 Be3: Sicilian Defence, Najdorf Variation, English Attack
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 g6: Sicilian Defence, Dragon Variation
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 g6 Be3 Bg7 f3: Sicilian Defence, Dragon Variation, Yugoslav Attack
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 Nc6: Sicilian Defence, Classical Variation
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 Nc6 Bg5: Sicilian Defence, Richter-Rauzer Attack
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 e6: Sicilian Defence, Scheveningen Variation
e4 c5 Nf3 Nc6: Sicilian Defence, Old Sicilian
e4 c5 Nf3 Nc6 Bb5: Sicilian Defence, Rossolimo Variation
e4 c5 Nf3 Nc6 d4 cxd4 Nxd4 g6: Sicilian Defence, Accelerated Dragon
e4 c5 Nf3 Nc6 d4 cxd4 Nxd4 Nf6 Nc3 e5: Sicilian Defence, Sveshnikov Variation
e4 c5 Nf3 e6: Sicilian Defence, French Variation
e4 c5 Nf3 e6 d4 cxd4 Nxd4 a6: Sicilian Defence, Kan Variation
e4 c5 Nf3 e6 d4 cxd4 Nxd4 Nc6: Sicilian Defence, Taimanov Variation
e4 e6: French Defence
e4 e6 d4 d5 e5: French Defence, Advance Variation
e4 e6 d4 d5 exd5: French Defence, Exchange Variation
e4 e6 d4 d5 Nd2: French Defence, Tarrasch Variation
e4 e6 d4 d5 Nc3: French Defence, Paulsen Variation
e4 e6 d4 d5 Nc3 Bb4: French Defence, Winawer Variation
e4 e6 d4 d5 Nc3 Nf6: French Defence, Classical Variation
e4 e6 d4 d5 Nc3 dxe4: French Defence, Rubinstein Variation
e4 c6: Caro-Kann Defence
e4 c6 d4 d5 e5: Caro-Kann Defence, Advance Variation
e4 c6 d4 d5 exd5 cxd5: Caro-Kann Defence, Exchange Variation
e4 c6 d4 d5 exd5 cxd5 c4: Caro-Kann Defence, Panov Attack
e4 c6 d4 d5 f3: Caro-Kann Defence, Fantasy Variation
e4 c6 d4 d5 Nc3 dxe4 Nxe4 Bf5: Caro-Kann Defence, Classical Variation
e4 c6 Nc3 d5 Nf3: Caro-Kann Defence, Two Knights Attack
e4 d5: Scandinavian Defence
e4 d5 exd5 Qxd5: Scandinavian Defence, Mieses-Kotroc Variation
e4 d5 exd5 Nf6: Scandinavian Defence, Modern Variation
e4 d6: Pirc Defence
e4 d6 d4 Nf6 Nc3 g6: Pirc Defence
e4 d6 d4 Nf6 Nc3 g6 f4: Pirc Defence, Austrian Attack
e4 g6: Modern Defence
e4 Nf6: Alekhine's Defence
e4 Nf6 e5 Nd5 d4 d6 c4 Nb6 f4: Alekhine's Defence, Four Pawns Attack
e4 Nc6: Nimzowitsch Defence
e4 b6: Owen's Defence
e4 a6: St. George Defence
d4: Queen's Pawn Game
d4 d5: Closed Game
d4 d5 Bf4: London System
d4 d5 Nf3 Nf6 Bf4: London System
d4 Nf6 Nf3 e6 Bf4: London System
d4 Nf6 Nf3 g6 Bf4: London System
d4 d5 Nf3 Nf6 e3: Colle System
d4 d5 e4: Blackmar-Diemer Gambit
d4 d5 Nc3 Nf6 Bg5: Richter-Veresov Attack
d4 d5 c4: Queen's Gambit
d4 d5 c4 dxc4: Queen's Gambit Accepted
d4 d5 c4 e6: Queen's Gambit Declined
d4 d5 c4 e6 Nc3 c5: Queen's Gambit Declined, Tarrasch Defence
d4 d5 c4 e6 Nc3 Nf6 cxd5 exd5: Queen's Gambit Declined, Exchange Variation
d4 d5 c4 e6 Nc3 Nf6 Nf3 c6: Semi-Slav Defence
d4 d5 c4 e6 Nc3 Nf6 Nf3 c6 e3 Nbd7 Bd3: Semi-Slav Defence, Meran Variation
d4 d5 c4 c6: Slav Defence
d4 d5 c4 c6 cxd5 cxd5: Slav Defence, Exchange Variation
d4 d5 c4 e5: Queen's Gambit, Albin Countergambit
d4 d5 c4 Nc6: Queen's Gambit, Chigorin Defence
d4 d5 c4 c5: Queen's Gambit, Austrian Defence
d4 f5: Dutch Defence
d4 f5 g3 Nf6 Bg2 g6: Dutch Defence, Leningrad Variation
d4 f5 g3 Nf6 Bg2 e6: Dutch Defence, Classical Variation
d4 f5 e4: Dutch Defence, Staunton Gambit
d4 e5: Englund Gambit
d4 c5: Old Benoni Defence
d4 Nf6: Indian Defence
d4 Nf6 Bg5: Trompowsky Attack
d4 Nf6 c4 c5: Benoni Defence
d4 Nf6 c4 c5 d5 b5: Benko Gambit
d4 Nf6 c4 c5 d5 e6: Modern Benoni
d4 Nf6 c4 e5: Budapest Gambit
d4 Nf6 c4 d6: Old Indian Defence
d4 Nf6 c4 e6: Indian Defence
d4 Nf6 c4 e6 g3: Catalan Opening
d4 Nf6 c4 e6 g3 d5: Catalan Opening
d4 Nf6 c4 e6 Nf3 b6: Queen's Indian Defence
d4 Nf6 c4 e6 Nf3 Bb4+: Bogo-Indian Defence
d4 Nf6 c4 e6 Nc3 Bb4: Nimzo-Indian Defence
d4 Nf6 c4 e6 Nc3 Bb4 Qc2: Nimzo-Indian Defence, Classical Variation
d4 Nf6 c4 e6 Nc3 Bb4 e3: Nimzo-Indian Defence, Rubinstein System
d4 Nf6 c4 e6 Nc3 Bb4 a3: Nimzo-Indian Defence, Sämisch Variation
d4 Nf6 c4 g6 Nc3 d5: Grünfeld Defence
d4 Nf6 c4 g6 Nc3 d5 cxd5 Nxd5 e4 Nxc3 bxc3: Grünfeld Defence, Exchange Variation
d4 Nf6 c4 g6 Nc3 Bg7: King's Indian Defence
d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 f3: King's Indian Defence, Sämisch Variation
d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 f4: King's Indian Defence, Four Pawns Attack
d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 Nf3 O-O Be2 e5: King's Indian Defence, Orthodox Variation
d4 Nf6 Nf3 g6 c4 Bg7 g3: King's Indian Defence, Fianchetto Variation
c4: English Opening
c4 e5: English Opening, Reversed Sicilian
c4 c5: English Opening, Symmetrical Variation
c4 Nf6: English Opening, Anglo-Indian Defence
Nf3: Réti Opening
Nf3 d5 c4: Réti Opening
Nf3 d5 g3: King's Indian Attack
b3: Nimzowitsch-Larsen Attack
b4: Polish Opening
f4: Bird's Opening
f4 e5: Bird's Opening, From's Gambit
g3: King's Fianchetto Opening
g4: Grob Opening
Nc3: Van Geet Opening
"""


@cache
def table() -> dict[str, str]:
    """Position (the first four fields of its FEN) -> name of the opening."""
    names = {}
    for line in _LINES.strip().splitlines():
        moves, _, name = line.partition(": ")
        board = chess.Board()
        for san in moves.split():
            board.push_san(san)
        names[board.epd()] = name
    return names


@cache
def longest() -> int:
    """Plies of the longest line."""
    return max(len(line.partition(": ")[0].split()) for line in _LINES.strip().splitlines())


def opening(moves: Sequence[int]) -> str | None:
    """Name of the last named position of a game from the initial position; None where there is none.

    Args:
        moves: Absolute ids.
    """
    names, board, found = table(), chess.Board(), None
    for move in moves[: longest()]:
        board.push(MOVES[move])
        found = names.get(board.epd(), found)
    return found

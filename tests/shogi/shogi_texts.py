"""Positions of shogi as texts, whole ones and damaged ones."""

TEXTS = [
    "lnsgkgsnl/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1",  # two pieces less for White, who moves first
    "4k4/9/9/9/9/9/9/9/9 b R2B4G4S4N4L18Pr 1",  # a mate problem: the attacker has no king
    "4k4/9/9/9/9/9/9/9/4K4 w 8P10p 1",
    "R8/2K1S1SSk/4B4/9/9/9/9/9/1L1L1L3 b RBGSNLP3g3n17p 1",  # 593 legal moves, the most there are
    "+P+P+P+PK4/GGGSSS3/9/9/9/9/9/9/4k4 b RB4P 1",
    "7nk/9/7G1/9/9/9/9/9/4K4 b P 1",
]

BAD_TEXTS = [
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1 b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSN b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNLL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL/9 b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/54/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/0/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL x - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - -1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1_0",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1000000",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1 extra",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b P 1",  # nineteen pawns
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b K 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/1PPPPPPPP/1B5R1/LNSGKGSNL b 0P 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/2PPPPPPP/1B5R1/LNSGKGSNL b PP 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSG1GSNL b - 1 moves 7g7f 7g7f",
    "lnsgk+gsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "lnsg+kgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP+/1B5R1/LNSGKGSNL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b",
    "4k4/4K4/9/9/9/9/9/9/9 b - 1",  # kings side by side
    "4k4/9/9/9/4P4/9/4P4/9/4K4 b - 1",  # two pawns on a file
    "4k3P/9/9/9/9/9/9/9/4K4 b - 1",
    "4k4/8N/9/9/9/9/9/9/4K4 b - 1",
    "4k4/9/9/9/9/9/9/8n/4K4 b - 1",
    "4k4/9/9/9/9/9/9/9/4K3l b - 1",
    "9/9/9/9/9/9/9/9/9 b - 1",
    "4k4/9/9/9/9/9/9/9/K3K4 b - 1",
    "4k4/9/9/9/4R4/9/9/9/9 b - 1",  # takes the only king
    "startpos moves 7g7f 7g7f",
    "startpos moves 7g7e",
    "startpos 7g7f",
    "sfen startpos",
    "position",
    "sfen",
    "moves 7g7f",
    "startpos\x00",
    "l1s.k1s1l/4g1rb1/pgnp2ppn/1pp1pp2p/3P5/4P3P/PPP1KPPP1/1BG2RS1L/LNS2G1N1 b - 1",  # a dot for an empty square
    "........./1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b ２P 1",
]

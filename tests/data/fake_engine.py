"""A UCI engine for tests that plays a move drawn from the position's text, and misbehaves on demand.

Written out as a program by ``write_engine``; ``MODE`` and ``FOLDER`` are filled in there. Every start and every search
leaves a line in FOLDER, so that a test can count them.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

MODE = "good"
FOLDER = Path(".")
SLEEP_S = 0.0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(kind: str, text: str) -> int:
    """Append a line to a log and return how many it now holds."""
    path = FOLDER / kind
    with path.open("a") as file:
        file.write(text + "\n")
    return len(path.read_text().splitlines())


def search(words: list[str], only: str | None) -> None:
    if MODE == "always dies":
        note("searches", " ".join(words))
        os._exit(7)
    import chess  # takes longer than all the rest of a start

    board = chess.Board(" ".join(words[2:8]))
    for move in words[9:]:
        board.push(board.parse_uci(move))
    fen = board.fen(en_passant="legal")
    count = note("searches", fen if only is None else f"{fen} {only}")
    if MODE == "dies twice" and count <= 2:
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(7)
    if MODE == "dies on rooks" and "r" not in fen.split()[0].lower():
        os._exit(7)
    if MODE == "hangs once" and count == 1:
        time.sleep(3600)
    if MODE == "garbage":
        os.write(
            1, b"info depth \xff\xfe score cp\ninfo score\n\x00\x01bestmove\ninfo pv pv pv\ninfo score mate x pv\n" * 50
        )
    if MODE == "floods stderr":
        sys.stderr.write("x" * 200_000)
        sys.stderr.flush()
    if SLEEP_S:
        time.sleep(SLEEP_S)
    digest = hashlib.sha256(fen.encode()).digest()
    line = []
    for i in range(1 + digest[0] % 3 if MODE != "one move" else 1):
        legal = sorted(move.uci() for move in board.legal_moves)
        if not legal:
            break
        move = only if only and i == 0 else legal[digest[i + 1] % len(legal)]
        line.append(move)
        board.push_uci(move)
    best = line[0]
    score = f"cp {digest[9] - 128}"
    say(f"info depth 1 multipv 1 score {score} nodes 100 pv {' '.join(line)}")
    if MODE == "bounds":
        say(f"info depth 2 score cp 999 lowerbound nodes 200 pv {best}")
        say("info depth 2 score cp -999 upperbound nodes 300 pv a1a1")
    if MODE == "bounds only":
        say(f"info depth 2 score cp 999 lowerbound nodes 200 pv {best}")
    if MODE == "multipv":
        say("info depth 1 multipv 2 score cp 777 nodes 100 pv a2a3")
    if MODE == "illegal line":
        say(f"info depth 2 score {score} nodes 100 pv {best} a1h8 {best}")
    if MODE == "string":
        say("info string score cp 555 pv a1a1")
    if MODE == "illegal move" or (MODE == "illegal twice" and count <= 2):
        best = "a1h8"
    if MODE == "no move":
        best = "(none)"
    say(f"bestmove {best} ponder a7a6")
    if MODE == "answers twice":
        time.sleep(0.02)
        say(f"bestmove {best}")


def main() -> None:
    note("starts", str(os.getpid()))
    if MODE == "exits":
        sys.exit(3)
    position: list[str] = []
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["uci"]:
            if MODE == "silent":
                continue
            say(
                "id name Fake 1.0\noption name Hash type spin default 16\n"
                "option name Skill Level type spin default 20\nuciok"
            )
        elif words[:1] == ["usi"]:
            say("id name Fake USI\noption name USI_Hash type spin default 16\nusiok")
        elif words[:1] == ["usinewgame"]:
            note("games", line.strip())
        elif words[:1] == ["setoption"]:
            note("options", line.strip())
        elif words[:1] == ["isready"]:
            if MODE == "slow start":
                time.sleep(1.0)
            if MODE == "dies when ready":
                os._exit(9)
            say("readyok")
        elif words[:1] == ["position"]:
            note("positions", line.strip())
            position = words
        elif words[:1] == ["go"]:
            note("limits", line.strip())
            search(position, words[words.index("searchmoves") + 1] if "searchmoves" in words else None)
        elif words[:1] == ["quit"]:
            return


if __name__ == "__main__":
    main()

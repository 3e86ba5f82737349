"""Shogi's rules a second time, slowly and without a library, to compare the fast ones with.

A position is a dict of squares (file 1..9, rank 1..9) to SFEN pieces such as ``"+p"``, a hand for each side and a side.
"""

from __future__ import annotations

ORTHOGONAL = [(0, -1), (-1, 0), (1, 0), (0, 1)]
DIAGONAL = [(-1, -1), (1, -1), (-1, 1), (1, 1)]
GOLD = [*ORTHOGONAL, (-1, -1), (1, -1)]
STEPS = {
    "P": [(0, -1)],
    "N": [(-1, -2), (1, -2)],
    "S": [(0, -1), *DIAGONAL],
    "G": GOLD,
    "K": ORTHOGONAL + DIAGONAL,
    **dict.fromkeys(("+P", "+L", "+N", "+S"), GOLD),
    "+B": ORTHOGONAL,
    "+R": DIAGONAL,
}
SLIDES = {"L": [(0, -1)], "B": DIAGONAL, "+B": DIAGONAL, "R": ORTHOGONAL, "+R": ORTHOGONAL}


class Position:
    def __init__(self, sfen: str) -> None:
        board, side, hands = sfen.split()[:3]
        self.side = 0 if side == "b" else 1
        self.squares: dict[tuple[int, int], str] = {}
        self.hands: list[dict[str, int]] = [{}, {}]
        for rank, row in enumerate(board.split("/"), 1):
            file, promoted = 9, ""
            for char in row:
                if char == "+":
                    promoted = "+"
                elif char.isdigit():
                    file -= int(char)
                else:
                    self.squares[file, rank] = promoted + char
                    file, promoted = file - 1, ""
        count = ""
        for char in hands.replace("-", ""):
            if char.isdigit():
                count += char
            else:
                self.hands[char.islower()][char.upper()] = int(count or 1)
                count = ""

    def copy(self) -> Position:
        other = Position.__new__(Position)
        other.side, other.squares, other.hands = self.side, dict(self.squares), [dict(h) for h in self.hands]
        return other

    def owner(self, square: tuple[int, int]) -> int | None:
        piece = self.squares.get(square)
        return None if piece is None else int(piece.islower())

    def reach(self, square: tuple[int, int]) -> list[tuple[int, int]]:
        """Squares that the piece attacks, own pieces' included."""
        piece = self.squares[square].upper()
        up = 1 if self.owner(square) == 0 else -1
        found = []
        for file, rank in STEPS.get(piece, []):
            found.append((square[0] + file, square[1] + rank * up))
        for file, rank in SLIDES.get(piece, []):
            at = (square[0] + file, square[1] + rank * up)
            while 1 <= at[0] <= 9 and 1 <= at[1] <= 9:
                found.append(at)
                if at in self.squares:
                    break
                at = (at[0] + file, at[1] + rank * up)
        return [s for s in found if 1 <= s[0] <= 9 and 1 <= s[1] <= 9]

    def in_check(self, side: int) -> bool:
        king = next((s for s, p in self.squares.items() if p == "Kk"[side]), None)
        return king is not None and any(king in self.reach(s) for s in self.squares if self.owner(s) != side)

    def pushed(self, move: str) -> Position:
        after = self.copy()
        target = (int(move[2]), ord(move[3]) - 96)
        if move[1] == "*":
            letter = move[0]
            after.hands[self.side][letter] -= 1
            after.squares[target] = letter if self.side == 0 else letter.lower()
        else:
            source = (int(move[0]), ord(move[1]) - 96)
            taken = after.squares.pop(target, "").lstrip("+").upper()
            if taken and taken != "K":
                after.hands[self.side][taken] = after.hands[self.side].get(taken, 0) + 1
            after.squares[target] = ("+" if move.endswith("+") else "") + after.squares.pop(source)
        after.side = 1 - self.side
        return after

    def depth(self, square: tuple[int, int]) -> int:
        """Rank as the side to move sees it: 1 is the last one."""
        return square[1] if self.side == 0 else 10 - square[1]

    def moves(self) -> list[str]:
        """Moves by how pieces move, before anybody looks at check."""

        def name(square: tuple[int, int]) -> str:
            return f"{square[0]}{chr(96 + square[1])}"

        dead = {"P": 1, "L": 1, "N": 2}
        found = []
        for source, piece in self.squares.items():
            if self.owner(source) != self.side:
                continue
            for target in self.reach(source):
                if self.owner(target) == self.side:
                    continue
                if self.depth(target) > dead.get(piece.upper(), 0):
                    found.append(name(source) + name(target))
                if piece.upper() in "PLNSBR" and min(self.depth(source), self.depth(target)) <= 3:
                    found.append(name(source) + name(target) + "+")
        for letter, count in self.hands[self.side].items():
            for target in [(f, r) for f in range(1, 10) for r in range(1, 10)] if count else []:
                if target in self.squares or self.depth(target) <= dead.get(letter, 0):
                    continue
                pawn = "Pp"[self.side]
                if letter == "P" and any(self.squares.get((target[0], rank)) == pawn for rank in range(1, 10)):
                    continue
                found.append(f"{letter}*{name(target)}")
        return found

    def legal(self) -> list[str]:
        found = []
        for move in self.moves():
            after = self.pushed(move)
            if after.in_check(self.side):
                continue
            if move.startswith("P*") and after.in_check(after.side) and not after.legal():
                continue
            found.append(move)
        return found

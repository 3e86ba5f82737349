"""Shogi's rules against reference positions, published counts, a slow second set of rules and another program."""

from __future__ import annotations

import random
import subprocess
from typing import Any

import cshogi
import numpy as np
import pytest

import genpolicy
from genpolicy.errors import ConfigError, IllegalMoveError
from genpolicy.testing import check_game
from genpolicy.testing.games import perft
from genpolicy_engines.oracle import find_engine
from genpolicy_shogi import rules
from genpolicy_shogi.tokens import ShogiTokenizer
from tests.shogi.naive_shogi import Position
from tests.shogi.shogi_positions import GAME, play, random_states, reference, turned, turned_move, usi
from tests.shogi.shogi_texts import BAD_TEXTS, TEXTS

START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
POSITIONS = reference()["positions"]
# (position, depth) of the counts that take seconds; the rest is slow.
QUICK_NODES = 30_000


def swap(state: Any) -> Any:
    return GAME.parse(turned(GAME.format(state)))


@pytest.mark.parametrize("num_games", [1, pytest.param(6, marks=pytest.mark.thorough)])
def test_the_laws_of_every_game_hold(num_games: int) -> None:
    check_game(GAME, num_games=num_games, texts=TEXTS, perft={1: 30, 2: 900}, bad_texts=BAD_TEXTS, colour_swap=swap)


@pytest.mark.parametrize("rule", ["declaration=24", "declaration=none", "max_plies=60"])
def test_the_laws_hold_under_the_other_rules(rule: str) -> None:
    check_game(genpolicy.load_game(f"shogi:{rule}"), num_games=1, texts=TEXTS[:2])


@pytest.mark.parametrize(
    ("table", "law", "sfen"),
    [
        ("dropped", "a drop puts its piece on the target and takes one from", "4k4/9/9/9/9/9/9/9/4K4 b B2p 1"),
        ("promoted", "a move leaves on its target what tokens.promoted says", "9/PPP3PPP/4k4/9/9/9/9/9/4K4 b - 1"),
    ],
)
def test_a_table_that_the_rules_do_not_bear_out_is_refused(
    table: str, law: str, sfen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(GAME.tokens, table)
    wrong = np.where(right < 0, -1, right + 1) if table == "dropped" else np.roll(right, 1, axis=0)
    monkeypatch.setattr(ShogiTokenizer, table, wrong)
    with pytest.raises(AssertionError, match=law):
        check_game(GAME, num_games=0, texts=[sfen])


def test_promotions_of_one_side_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who moves sees his own pieces promote; a line is seen by one player, who sees the other's, too."""
    half = GAME.tokens.promoted.copy()
    other = GAME.tokens.turned[1][np.arange(1, 9)]
    half[:, other] = other
    monkeypatch.setattr(ShogiTokenizer, "promoted", half)
    with pytest.raises(AssertionError, match=r"a move leaves on its target what tokens\.promoted says"):
        check_game(GAME, num_games=0, texts=["9/PPP3PPP/4k4/9/9/9/9/9/4K4 b - 1"])


def perfts(quick: bool) -> list[Any]:
    """(name, SFEN, depth, nodes) whose work, the nodes one ply earlier, is small or not."""
    return [
        pytest.param(entry["sfen"], depth, nodes, id=f"{entry['name']}-{depth}")
        for entry in reference()["perft"]
        for depth, nodes in enumerate(entry["perft"], 1)
        if ([1, *entry["perft"]][depth - 1] <= QUICK_NODES) == quick and nodes < 5e7
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("sfen", "depth", "nodes"), perfts(quick=True))
def test_perft(sfen: str, depth: int, nodes: int) -> None:
    assert perft(GAME, GAME.parse(sfen), depth) == nodes


@pytest.mark.slow
@pytest.mark.parametrize(("sfen", "depth", "nodes"), perfts(quick=False))
def test_perft_deep(sfen: str, depth: int, nodes: int) -> None:
    assert perft(GAME, GAME.parse(sfen), depth) == nodes


def test_legal_moves_of_the_reference_positions() -> None:
    assert len(POSITIONS) == 200
    for position in POSITIONS:
        state = GAME.parse(position["sfen"])
        assert sorted(usi(state)) == sorted(position["legal"]), position["sfen"]
        assert state.in_check == position["in_check"]
        assert GAME.format(state).split()[:3] == position["sfen"].split()[:3]
        mirrored = GAME.parse(turned(GAME.format(state)))
        assert sorted(usi(mirrored)) == sorted(map(turned_move, position["legal"]))


def test_outcomes_of_the_reference_positions() -> None:
    games = {rule: genpolicy.load_game(f"shogi:declaration={rule}") for rule in ("27", "24", "none")}
    results = {"win": 1.0, "draw": 0.0, "none": None}
    seen = set()
    for position in POSITIONS:
        state = GAME.parse(position["sfen"])
        ended = -1.0 if position["game_over"] else None
        seen |= {position["nyugyoku_27"], position["nyugyoku_24"]}
        assert games["27"].outcome(state) == (1.0 if position["nyugyoku_27"] else ended)
        assert games["24"].outcome(state) == (results[position["nyugyoku_24"]] if ended is None else ended)
        assert games["none"].outcome(state) == ended
        assert not position["nyugyoku_27"] or len(GAME.legal(state))  # decided, and a record may play on
    assert seen == {True, False, "win", "draw", "none"}


@pytest.mark.parametrize("case", reference()["illegal_usi"], ids=lambda case: f"{case['usi']} {case['why']}")
def test_illegal_moves_that_the_library_takes_are_refused(case: dict[str, Any]) -> None:
    state = GAME.parse(case["sfen"])
    if case["usi"] in GAME.moves.texts:
        with pytest.raises(IllegalMoveError, match="illegal") as caught:
            GAME.play(state, GAME.moves.index(case["usi"]))
        assert case["usi"] in str(caught.value)
        assert GAME.format(state) in str(caught.value)
    else:  # no position has it: a promotion far from the zone, a knight that could never move again
        with pytest.raises(ValueError, match="not a move"):
            GAME.moves.index(case["usi"])
    with pytest.raises(ValueError, match="illegal"):
        GAME.move_from_text(state, case["usi"])


@pytest.mark.parametrize("game", reference()["repetition"], ids=lambda game: game["name"])
def test_repetition_of_the_reference_games(game: dict[str, Any]) -> None:
    state = GAME.parse(game["start"])
    for move, ply in zip(game["moves"], game["plies"], strict=True):
        assert GAME.outcome(state) is None
        state = play(state, move)
        assert state.keys.count(GAME.key(state)) == ply["count"]
        assert state.in_check == ply["gives_check"]
    black = {"ongoing": None, "draw": 0.0, "black_loses": -1.0, "white_loses": 1.0}[game["result"]]
    assert GAME.outcome(state) == (black if black is None or GAME.player(state) == 0 else -black)


# The king of White steps between 9a and 8a; Black's rook checks it from the file it stands on.
CHECKS = ["9a8a", "9i8i", "8a9a", "8i9i"]


def outcomes_for_black(start: str, moves: list[str]) -> list[float | None]:
    state, found = GAME.parse(start), []
    for move in moves:
        state = play(state, move)
        outcome = GAME.outcome(state)
        found.append(outcome if outcome is None or GAME.player(state) == 0 else -outcome)
    return found


def test_perpetual_check_loses_as_either_colour() -> None:
    start = "k8/9/9/9/9/9/9/9/R7K w - 1"
    assert outcomes_for_black(start, CHECKS * 3) == [None] * 11 + [-1.0]
    before = "1k7/9/9/9/9/9/9/9/1R6K w - 1"
    fleeing = ["8a9a", "8i9i", "9a8a", "9i8i"]
    assert outcomes_for_black(before, fleeing * 3) == [None] * 11 + [-1.0]
    flipped = [turned_move(move) for move in CHECKS]
    assert outcomes_for_black(turned(start), flipped * 3) == [None] * 11 + [1.0]


def test_the_fleeing_side_closes_the_repetition() -> None:
    # Black to move at the start, which the fleeing king's moves bring back.
    start = "k8/9/9/9/9/9/9/9/1R6K b - 1"
    cycle = ["8i9i", "9a8a", "9i8i", "8a9a"]
    assert outcomes_for_black(start, cycle * 3) == [None] * 11 + [-1.0]


def test_one_quiet_move_in_the_cycle_makes_it_a_draw() -> None:
    start = "k8/9/9/9/9/9/9/9/R7K w - 1"
    quiet = ["9a8a", "9i7i", "8a9a", "7i9i"]
    for place in range(3):
        moves = [move for i in range(3) for move in (quiet if i == place else CHECKS)]
        assert outcomes_for_black(start, moves) == [None] * 11 + [0.0]


def test_repetition_counts_from_the_parsed_position_and_hands_matter() -> None:
    shuffle = ["2h3h", "8b7b", "3h2h", "7b8b"]
    assert outcomes_for_black(START, shuffle * 3) == [None] * 11 + [0.0]
    assert outcomes_for_black(START, ["7g7f", "3c3d", *shuffle * 2]) == [None] * 10
    # The same board comes back, but Black has traded a pawn drop for nothing: other hands, no repetition.
    state = play(GAME.parse(START), *shuffle * 3)
    assert GAME.outcome(state) == 0.0
    assert len(GAME.legal(state)) == 30  # a record that plays on replays
    assert GAME.outcome(play(state, "7g7f")) is None
    assert GAME.outcome(GAME.parse(GAME.format(state))) is None


def test_no_legal_move_loses_without_check_too() -> None:
    state = GAME.parse("8k/9/8G/9/9/9/9/9/4K2R1 w - 1")
    assert not state.in_check
    assert len(GAME.legal(state)) == 0
    assert GAME.outcome(state) == -1.0


def test_dropped_pawn_may_not_mate_and_everything_else_may() -> None:
    state = GAME.parse("7nk/9/7G1/9/9/9/9/9/4K4 b LP 1")
    assert "P*1b" not in usi(state)
    assert GAME.outcome(play(state, "L*1b")) == -1.0
    pushed = play(GAME.parse("7nk/9/7GP/9/9/9/9/9/4K4 b - 1"), "1c1b")
    assert GAME.outcome(pushed) == -1.0


def naive_points(sfen: str) -> tuple[int, int, bool]:
    """(points, pieces in the zone, king in the zone) of the side to move, counted from the text."""
    position = Position(sfen)
    pieces = [
        piece.lstrip("+").upper()
        for square, piece in position.squares.items()
        if position.owner(square) == position.side and position.depth(square) <= 3
    ]
    others = [piece for piece in pieces if piece != "K"]
    points = sum(5 if piece in "RB" else 1 for piece in others)
    points += sum(count * (5 if piece in "RB" else 1) for piece, count in position.hands[position.side].items())
    return points, len(others), "K" in pieces


def random_entered(rng: random.Random) -> str:
    """A position with both kings near or in the other camp and most pieces around Black's."""
    squares = [(file, rank) for file in range(1, 10) for rank in range(1, 10)]
    near = [s for s in squares if s[1] <= 3]
    rng.shuffle(near)
    placed = {near.pop(): "K"}
    far = [s for s in squares if s[1] >= 5]
    rng.shuffle(far)
    placed[far.pop()] = "k"
    hands: dict[str, int] = {}
    for letter, count in {"R": 2, "B": 2, "G": 4, "S": 4, "N": 4, "L": 4, "P": 18}.items():
        for _ in range(count):
            where = rng.random()
            piece = letter if letter == "G" or (letter in "RBS" and rng.random() < 0.5) else "+" + letter
            if where < 0.45 and len(near) > 8:
                placed[near.pop()] = piece if rng.random() < 0.9 else piece.lower()
            elif where < 0.6 and far:
                placed[far.pop()] = piece
            elif where < 0.85:
                hands[letter] = hands.get(letter, 0) + 1
    rows = []
    for rank in range(1, 10):
        text, empty = "", 0
        for file in range(9, 0, -1):
            if (file, rank) in placed:
                text, empty = text + (str(empty) if empty else "") + placed[file, rank], 0
            else:
                empty += 1
        rows.append(text + (str(empty) if empty else ""))
    held = "".join((str(hands[x]) if hands[x] > 1 else "") + x for x in "RBGSNLP" if x in hands)
    return f"{'/'.join(rows)} b {held or '-'} 1"


def test_declarations_against_a_second_count_and_the_library() -> None:
    rng, wins, draws = random.Random(5), 0, 0
    for _ in range(1500):
        sfen = random_entered(rng)
        for text in (sfen, turned(sfen)):
            try:
                state = GAME.parse(text)
            except ValueError:
                continue
            points, pieces, entered = naive_points(text)
            free = entered and pieces >= 10 and not state.in_check
            needed = 28 if state.turn == 0 else 27
            assert rules.declaration(state, "27") == (1.0 if free and points >= needed else None), text
            expected = None if not free or points < 24 else 1.0 if points >= 31 else 0.0
            assert rules.declaration(state, "24") == expected, text
            assert rules.declaration(state, "none") is None
            assert (rules.declaration(state, "27") == 1.0) == state.board.is_nyugyoku(cshogi.LAW_27)
            in_words = {None: cshogi.NYUGYOKU_NONE, 0.0: cshogi.NYUGYOKU_DRAW, 1.0: cshogi.NYUGYOKU_WIN}
            assert in_words[expected] == state.board.nyugyoku_result(cshogi.LAW_24)
            wins, draws = wins + (expected == 1.0), draws + (expected == 0.0)
    assert wins > 50
    assert draws > 50


def test_limit_of_plies() -> None:
    game: Any = genpolicy.load_game("shogi:max_plies=3")
    state = game.parse()
    for move in ("7g7f", "3c3d", "2g2f"):
        assert game.outcome(state) is None
        state = game.play(state, game.moves.index(move))
    assert game.outcome(state) == 0.0
    # What a mid-game text says of the plies before counts; a text without a number says nothing.
    sfen = GAME.format(state).rpartition(" ")[0]
    assert game.outcome(game.parse(f"{sfen} 4")) == 0.0
    assert game.outcome(game.parse(sfen)) is None
    # So does a game that is handed on, as to the page, an engine or a worker.
    start, moves = game.history(game.parse(f"{sfen} 3 moves 8c8d"))
    assert start == f"{sfen} 3"
    assert game.outcome(play(game.parse(start), *(game.moves[move] for move in moves))) == 0.0
    mate: Any = genpolicy.load_game("shogi:max_plies=1")
    mated = mate.play(mate.parse("7nk/9/7GP/9/9/9/9/9/4K4 b - 1"), mate.moves.index("1c1b"))
    assert mate.outcome(mated) == -1.0


def test_options_and_specifications() -> None:
    assert GAME.spec == "shogi"
    assert genpolicy.load_game("shogi:declaration=27,max_plies=none").spec == "shogi"
    other = genpolicy.load_game("shogi:max_plies=256,declaration=24")
    assert other.spec == "shogi:declaration=24,max_plies=256"
    assert genpolicy.load_game(other.spec).spec == other.spec
    for bad in ("declaration=28", "max_plies=0", "max_plies=-1", "max_plies=many", "max_plies=٣"):
        with pytest.raises((ValueError, ConfigError), match=bad.partition("=")[2]):
            genpolicy.load_game(f"shogi:{bad}")
    with pytest.raises(ValueError, match="declaration"):
        genpolicy.load_game("shogi:declarations=27")


def test_handicap_games_begin_with_white() -> None:
    state = GAME.parse(TEXTS[0])
    assert GAME.player(state) == 1
    assert len(GAME.legal(state)) == 26
    assert GAME.player(play(state, "5a4b")) == 0


def replay_against_the_library(count: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        board, state = cshogi.Board(), GAME.parse()
        for _ in range(1000):
            moves = {cshogi.move_to_usi(move): move for move in board.legal_moves}
            assert sorted(usi(state)) == sorted(moves)
            assert GAME.format(state).split()[:3] == board.sfen().split()[:3]
            assert state.in_check == board.is_check()
            assert state.number == board.move_number
            if not moves:
                assert GAME.outcome(state) == -1.0
                break
            chosen = rng.choice(sorted(moves))
            board.push(moves[chosen])
            state = play(state, chosen)


def test_random_games_move_by_move_against_the_library() -> None:
    replay_against_the_library(15, seed=1)


@pytest.mark.slow
def test_three_thousand_random_games_move_by_move_against_the_library() -> None:
    replay_against_the_library(3000, seed=2)


def test_legal_moves_against_a_second_set_of_rules() -> None:
    rng = random.Random(3)
    states = rng.sample(random_states(4000, seed=4), 120)
    for state in states:
        assert sorted(usi(state)) == sorted(Position(GAME.format(state)).legal()), GAME.format(state)
    for text in TEXTS:
        assert sorted(usi(GAME.parse(text))) == sorted(Position(text).legal()), text


def test_a_check_that_stood_before_the_first_move_is_seen() -> None:
    # White, not to move, is in check from the rook; Black plays elsewhere. cshogi alone would not notice.
    state = GAME.parse("4k4/9/9/9/4R4/9/9/9/K8 b - 1")
    after = play(state, "9i9h")
    assert after.in_check
    assert sorted(usi(after)) == sorted(Position(GAME.format(after)).legal())


class FairyStockfish:
    """``go perft 1`` over USI."""

    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("usi", "usiok")

    def ask(self, command: str, until: str) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            lines.append(line.strip())
            if line.startswith(until):
                return lines
        raise AssertionError("fairy-stockfish ended")

    def legal(self, sfen: str) -> list[str]:
        lines = self.ask(f"position sfen {sfen}\ngo perft 1", "Nodes searched")
        return [line.partition(":")[0] for line in lines if line.endswith(": 1")]

    def close(self) -> None:
        self.process.communicate("quit\n", timeout=10)


def test_two_hundred_positions_against_fairy_stockfish() -> None:
    path = find_engine("fairy-stockfish")
    if path is None:
        pytest.skip("fairy-stockfish is not installed (Debian: apt install fairy-stockfish)")
    rng = random.Random(6)
    texts = [GAME.format(state) for state in rng.sample(random_states(6000, seed=7), 170)]
    texts += [position["sfen"] for position in POSITIONS if position["category"] in ("uchifuzume", "nifu", "drops")]
    texts += [position["sfen"] for position in POSITIONS if position["category"] == "selfplay"]
    engine = FairyStockfish(str(path))
    try:
        extra = 0
        for text in texts[:200]:
            ours, theirs = set(usi(GAME.parse(text))), set(engine.legal(text))
            assert ours <= theirs, text
            for move in theirs - ours:  # it generates the pawn drops that mate and scores them as lost
                after = Position(text).pushed(move)
                assert move.startswith("P*"), (text, move)
                assert after.in_check(after.side), (text, move)
                assert not after.legal(), (text, move)
                extra += 1
        assert len(texts) >= 200
        assert extra >= 3
    finally:
        engine.close()

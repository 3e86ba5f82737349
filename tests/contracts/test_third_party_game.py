"""A game that somebody else wrote: one class and one entry point, and the core and its laws take it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genpolicy import load_game, registry
from genpolicy.errors import IllegalMoveError, RegistryError, SourceError
from genpolicy.facets import evaluation, reader, writer
from genpolicy.game import Game, Hints, IntArray, MoveVocabulary, StateTokenizer, View
from genpolicy.networks import NetworkConfig
from genpolicy.sequence import Layout
from genpolicy.testing import check_game
from genpolicy.testing.encodings import check_moves
from genpolicy_alphabeta.search import AlphaBeta
from genpolicy_mcts.mcts import Mcts
from genpolicy_mcts.rules import RulesModel, even
from genpolicy_mcts.selection import MctsConfig
from genpolicy_policy_baselines.simple import GreedyPolicy
from genpolicy_policy_baselines.state_value import StateValueLearner
from genpolicy_policy_baselines.value import ValueConfig

pytestmark = pytest.mark.usefixtures("warm_start")


class NimTokens(StateTokenizer[tuple[int, int]]):
    symbols = (*(str(n) for n in range(13)), "A", "B")
    rows = cols = np.full(2, -1, np.int16)
    hands = np.array([0, -1], np.int16)
    admitted = np.array([[True] * 13 + [False] * 2, [False] * 13 + [True] * 2])

    def encode(self, states: Sequence[tuple[int, int]], viewers: Sequence[int] | IntArray | None = None) -> Any:
        seen = np.zeros(len(states), int) if viewers is None else np.asarray(viewers)
        return np.array([[n, 13 + (p ^ v)] for (n, p), v in zip(states, seen, strict=True)], np.int16).reshape(-1, 2)

    def decode(self, row: IntArray, viewer: int = 0) -> tuple[int, int]:
        if len(row) != 2 or not 0 <= row[0] <= 12 or not 13 <= row[1] <= 14:
            raise ValueError(f"{list(row)} is not a row of Nim")
        return int(row[0]), (int(row[1]) - 13) ^ viewer


class NimGame(Game[tuple[int, int]]):
    """Twelve matches; take one, two or three; who takes the last one wins."""

    name, spec, protocol, players = "nim", "nim", "none", ("A", "B")
    tokens = NimTokens()
    moves = MoveVocabulary(
        texts=("1", "2", "3"),
        source=np.zeros(3, np.int16),
        target=np.full(3, -1, np.int16),
        kind=np.arange(3, dtype=np.int16),
        num_kinds=3,
        mirrored=np.arange(3),
    )

    def parse(self, text: str | None = None) -> tuple[int, int]:
        number, _, player = (text if text is not None else "12 A").partition(" ")
        if not number.isdecimal() or str(int(number)) != number or int(number) > 12 or player not in ("A", "B"):
            raise ValueError(f"{text!r} is not a position of Nim; write '12 A'")
        return int(number), "AB".index(player)

    def format(self, state: tuple[int, int]) -> str:
        return f"{state[0]} {'AB'[state[1]]}"

    def legal(self, state: tuple[int, int]) -> NDArray[np.int64]:
        return np.arange(min(3, state[0]))

    def play(self, state: tuple[int, int], move_id: int) -> tuple[int, int]:
        if move_id not in self.legal(state):
            name = self.moves[move_id] if 0 <= move_id < 3 else move_id
            raise IllegalMoveError(f"move {name} is illegal in {self.format(state)!r}")
        return state[0] - int(move_id) - 1, 1 - state[1]

    def player(self, state: tuple[int, int]) -> int:
        return state[1]

    def outcome(self, state: tuple[int, int]) -> float | None:
        return -1.0 if state[0] == 0 else None

    def key(self, state: tuple[int, int]) -> str:
        return self.format(state)


@pytest.fixture
def nim(monkeypatch: pytest.MonkeyPatch) -> Game[Any]:
    """Nim as ``genpolicy.load_game`` finds it, once a package names it in its entry points."""
    point = EntryPoint("nim", f"{__name__}:NimGame", "genpolicy.games")
    monkeypatch.setattr(EntryPoint, "load", lambda self: NimGame)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    registry.load_game.cache_clear()
    yield load_game("nim")  # type: ignore[misc]
    registry.load_game.cache_clear()


def test_it_is_found_and_keeps_the_laws(nim: Game[Any]) -> None:
    assert type(nim) is NimGame
    check_game(nim, perft={1: 3, 2: 9, "4 B": {1: 3, 2: 6}}, texts=["1 B", "0 A"], bad_texts=["13 A", "4 C", "04 A"])


class AgainNim(NimGame):
    """Who takes one match moves again."""

    def play(self, state: tuple[int, int], move_id: int) -> tuple[int, int]:
        left, player = super().play(state, move_id)
        return left, player ^ (move_id == 0)

    def outcome(self, state: tuple[int, int]) -> float | None:
        return None if state[0] else -1.0


def test_players_that_do_not_alternate_are_declared() -> None:
    game = AgainNim()
    with pytest.raises(AssertionError, match="players alternate"):
        check_game(game)
    game.alternates = False
    check_game(game)
    with pytest.raises(ValueError, match="alpha-beta needs alternating players"):
        AlphaBeta(game)
    with pytest.raises(ValueError, match="mate need players that alternate"):
        game.mate_distance(game.parse(), 3)


def test_searches_and_values_keep_the_side_where_a_player_moves_again() -> None:
    """With two left the mover takes one and, still to move, the other: who is left without a match loses."""
    game = AgainNim()
    game.alternates = False
    value = {}
    for left in range(13):  # for the player to move, by brute force
        after = [game.play((left, 0), move) for move in game.legal((left, 0))]
        value[left] = max((value[n] * (1 if p == 0 else -1) for n, p in after), default=-1)
    assert {-1, 1} <= set(value.values())
    for left in range(1, 7):
        model = RulesModel(game, even)
        found = Mcts(model, MctsConfig(simulations=400)).search([(left, 0)], [0])[0]
        assert np.sign(found.value) == value[left], left


class FewerIsBetter(Hints[tuple[int, int]]):
    gives = ("evaluate",)

    def evaluate(self, state: tuple[int, int]) -> float:
        return 1 - state[0] / 6


def test_values_of_positions_in_which_the_same_player_moves_again_keep_their_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the moves from 9 to 8 (the same player), 7 and 6 (the other one)."""
    game = AgainNim()
    game.alternates, game.hints = False, FewerIsBetter()
    greedy = GreedyPolicy(game)
    decision = greedy.decide([(9, 0)])[0]
    assert (decision.move, decision.value) == (1, pytest.approx(7 / 6 - 1))
    assert greedy.decide([(5, 0)])[0].value == pytest.approx(1 - 4 / 6)  # one match: 4 are left and it is still to move
    network = NetworkConfig(num_layers=1, width=8, num_heads=1)
    policy = StateValueLearner(game, ValueConfig(network=network)).policy()
    monkeypatch.setattr(policy, "_read", lambda tokens: (np.full(len(tokens), 0.5), np.full(len(tokens), 0.5), 1))
    means, modes, _ = policy._value_moves([(9, 0)], [[0, 1, 2]])
    assert means[0].tolist() == modes[0].tolist() == [0.5, -0.5, -0.5]


def test_a_game_with_flat_members_is_told_where_they_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Game`` had these members itself once."""

    class OldNim(NimGame):
        def evaluate(self, state: tuple[int, int]) -> float:
            return 0.0

        def board_text(self, state: tuple[int, int]) -> str:
            return "o" * state[0]

    point = EntryPoint("nim", f"{__name__}:OldNim", "genpolicy.games")
    monkeypatch.setattr(EntryPoint, "load", lambda self: OldNim)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    registry.load_game.cache_clear()
    with pytest.raises(RegistryError, match=r"OldNim defines evaluate \(move .*Hints .* board_text \(move .*View"):
        load_game("nim")


def test_a_game_without_facets_says_what_it_lacks(nim: Game[Any], tmp_path: Path) -> None:
    assert (nim.files, nim.hints, type(nim.view)) == (None, None, View)
    with pytest.raises(SourceError, match="game 'nim' reads no files of games or positions"):
        reader(nim, tmp_path, "games", "positions")
    with pytest.raises(ValueError, match="game 'nim' writes no files of games"):
        writer(nim, tmp_path, "games")
    with pytest.raises(ValueError, match="game 'nim' has no heuristic evaluation"):
        evaluation(nim)
    assert AlphaBeta(nim, evaluator=even).search(nim.parse("5 A")).value == 1.0
    with pytest.raises(ValueError, match="no heuristic evaluation"):
        AlphaBeta(nim, depth=2).search(nim.parse())


def test_hints_that_are_written_and_not_declared_are_named() -> None:
    class Silent(Hints[tuple[int, int]]):
        def evaluate(self, state: tuple[int, int]) -> float:
            return 0.0

    game = mutated(hints=Silent())
    message = r"no heuristic evaluation \(Silent\.gives does not name its 'evaluate'\); take random rollouts, mcts:"
    with pytest.raises(ValueError, match=message):
        evaluation(game)
    with pytest.raises(ValueError, match=message):
        AlphaBeta(game, depth=2).search(game.parse())
    with pytest.raises(AssertionError, match=r"hints\.gives names what hints defines \(gives is empty, evaluate"):
        check_game(game)


def test_the_core_lays_it_out(nim: Game[Any]) -> None:
    layout = Layout(nim, "s-asa", 3)
    assert layout.length == 3 * 2 + 3
    assert layout.num_symbols == 15 + 3 + 1


def test_a_package_with_an_entry_point_is_all_it_takes(tmp_path: Path) -> None:
    """The same game as an installed distribution, in a process that knows nothing of this test."""
    shutil.copy(__file__, tmp_path / "third_party_nim.py")
    info = tmp_path / "third_party_nim-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-nim\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genpolicy.games]\nnim = third_party_nim:NimGame\n")
    found = subprocess.run(
        [sys.executable, "-m", "genpolicy", "perft", "--game", "nim", "--depth", "2"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["9"]


# Each law is seen to fail: a game broken in one place, and the words that name it.


def mutated(**methods: Any) -> Game[Any]:
    return type("BrokenNim", (NimGame,), methods)()


def vocabulary(**changes: Any) -> MoveVocabulary:
    base = NimGame.moves
    fields = {name: getattr(base, name) for name in ("texts", "source", "target", "kind", "num_kinds", "mirrored")}
    return MoveVocabulary(**{**fields, **changes})


def tokens(**members: Any) -> NimTokens:
    return type("BrokenTokens", (NimTokens,), members)()


class ForgetfulTokens(NimTokens):
    def decode(self, row: IntArray, viewer: int = 0) -> tuple[int, int]:
        return super().decode(row, 0)


class RepairingTokens(NimTokens):
    def decode(self, row: IntArray, viewer: int = 0) -> tuple[int, int]:
        return int(np.clip(row[0], 0, 12)), (int(row[1] == 14)) ^ viewer


class LookupTokens(NimTokens):
    def decode(self, row: IntArray, viewer: int = 0) -> tuple[int, int]:
        return int(self.symbols[row[0]]), "AB".index(self.symbols[row[1]]) ^ viewer


class WideTokens(NimTokens):
    def encode(self, states: Sequence[tuple[int, int]], viewers: Sequence[int] | IntArray | None = None) -> Any:
        return super().encode(states, viewers).astype(np.int64)


class NarrowTokens(NimTokens):
    admitted = NimTokens.admitted & (np.arange(15) != 12)


class BatchTokens(NimTokens):
    def encode(self, states: Sequence[tuple[int, int]], viewers: Sequence[int] | IntArray | None = None) -> Any:
        rows = super().encode(states, viewers)
        rows[1:, 0] = rows[0, 0]
        return rows


class SidelessHints(Hints[tuple[int, int]]):
    gives = ("transposition_key",)

    def transposition_key(self, state: tuple[int, int], plies: int) -> int:
        return state[0]


@pytest.mark.parametrize(
    ("game", "law"),
    [
        (mutated(moves=vocabulary(texts=("1", "2", "2"))), "move texts are all different"),
        (mutated(moves=vocabulary(mirrored=np.array([1, 2, 0]))), "its own inverse"),
        (
            mutated(moves=vocabulary(kind=np.zeros(3, np.int16), num_kinds=1)),
            "no two moves with a square share source, target and kind",
        ),
        (mutated(moves=vocabulary(source=np.full(3, 2, np.int16))), "moves.source is a state token or -1"),
        (mutated(tokens=ForgetfulTokens()), "decode\\(encode\\(s\\)\\) has the text of s, viewer 1"),
        (mutated(tokens=RepairingTokens()), "decode refuses"),
        (mutated(tokens=WideTokens()), "encode gives int16 rows"),
        (mutated(tokens=tokens(admitted=NimTokens.admitted.astype(int))), r"admitted .*\(int64 \[2, 15\], L=2 tokens"),
        (mutated(tokens=tokens(admitted=NimTokens.admitted[:1])), r"admitted is a bool table .*\(bool \[1, 15\], L=2"),
        (mutated(tokens=tokens(rows=NimTokens.rows[:1])), r"tokens\.cols has one integer .*\(int16 \[2\], L=1 tokens"),
        (mutated(tokens=tokens(hands=[0, -1])), r"tokens\.hands has one integer a token, .* \(a list, L=2 tokens"),
        (mutated(tokens=tokens(dropped=[-1, -1])), r"tokens\.dropped is an integer table \[2\] .* \(a list\)"),
        (mutated(tokens=tokens(dropped=np.array([15, -1]))), r"dropped .* of -1\.\.14 \(int64 \[2\], -1\.\.15\)"),
        (mutated(tokens=tokens(promoted=lambda self: None)), r"promoted is an integer table \[3, 15\] .*a method"),
        (mutated(tokens=tokens(promoted=np.full((3, 15), -1))), r"tokens\.promoted .* of 0\.\.14 .*, -1\.\.-1\)"),
        (mutated(tokens=tokens(captured=np.zeros(2, int))), r"tokens\.captured is an integer table \[15\] .* \[2\]"),
        (mutated(legal=lambda self, s: list(range(min(3, s[0])))), r"legal gives int64 ids \(a list\)"),
        (
            mutated(tokens=tokens(encode=lambda *a: NimTokens.encode(*a).tolist())),
            r"int16 rows of L ids .*\(a list, L=2",
        ),
        (mutated(tokens=NarrowTokens()), "every symbol is admitted somewhere"),
        (mutated(tokens=BatchTokens()), "does not depend on the others"),
        (mutated(legal=lambda self, s: np.arange(min(3, s[0]))[::-1]), "legal ids are sorted"),
        (mutated(legal=lambda self, s: np.arange(3) if s[0] else np.arange(0)), "what is legal works"),
        (mutated(outcome=lambda self, s: None), "without a legal move there is an outcome"),
        (mutated(outcome=lambda self, s: -2.0 if s[0] == 0 else None), r"outcome lies in \[-1, 1\]"),
        (mutated(outcome=lambda self, s: False if s[0] == 0 else None), r"outcome is a number, .* \(False\)"),
        (mutated(outcome=lambda self, s: np.bool_(False) if s[0] == 0 else None), "not a truth value"),
        (mutated(outcome=lambda self, s: "loss" if s[0] == 0 else None), r"outcome is a number, .* \('loss'\)"),
        (mutated(format=lambda self, s: f"{s[0]} A"), "a text keeps the player to move|legal works"),
        (mutated(play=lambda self, s, m: (max(0, s[0] - int(m) - 1), 1 - s[1])), "an illegal move is a ValueError"),
        (mutated(parse=lambda self, t=None: NimGame.parse(self, t) if t != "" else (12, 0)), "is a ValueError"),
        (
            mutated(parse=lambda self, t=None: NimGame.parse(self, t and " ".join(t.split(" ")[i] for i in (0, 1)))),
            r"broken in 'x': a text that is not a position is a ValueError \(raised IndexError: list index",
        ),
        (
            mutated(play=lambda self, s, m: NimGame.play(self, s, {0: 0, 1: 1, 2: 2}[int(m)])),
            r"an illegal move is a ValueError \(move -1 raised KeyError: -1\)",
        ),
        (mutated(tokens=LookupTokens()), r"broken in '\d+ [AB]': decode refuses .* raised IndexError: "),
        (mutated(tokens=tokens(turned=lambda self: None)), r"turned is a property that gives \(places, symbols\)"),
        (
            mutated(play=lambda self, s, m: (NimGame.play(self, s, m)[0], s[1])),
            r"\(set `alternates = False` if",
        ),
        (mutated(key=lambda self, s: object()), "makes the same position"),
        (mutated(key=lambda self, s: s[0]), r"positions of one key have the same .* legal moves \(as '\d+ [AB]'\)"),
        (mutated(key=lambda self, s: [s]), r"key is hashable text, bytes or int"),
        (mutated(hints=SidelessHints()), r"positions of one transposition key have .* \(as '\d+ [AB]'\)"),
        (mutated(positions=lambda self: iter([(12, 0), (11, 1), (12, 0)])), "positions gives each position once"),
        (mutated(positions=lambda self: iter([(12, 0), (11, 1)])), r"positions gives every position that play reaches"),
        (mutated(player=lambda self, s: 1 - s[1]), "player 0 moves first"),
        (mutated(spec="other"), "spec begins with the game's name"),
    ],
)
def test_a_broken_game_is_told_which_law(game: Game[Any], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_game(game, bad_texts=["x"])


def test_a_heuristic_for_one_player_whoever_moves_is_told() -> None:
    class FirstPlayerHints(Hints[tuple[int, int]]):
        gives = ("evaluate",)

        def evaluate(self, state: tuple[int, int]) -> float:
            return (0.5 if state[0] % 4 else -0.5) * (1 - 2 * state[1])

    with pytest.raises(AssertionError, match=r"hints\.evaluate, for the player to move, .* \(-0\.5 becomes 0\.5\)"):
        check_game(mutated(hints=FirstPlayerHints()), colour_swap=lambda state: (state[0], 1 - state[1]))


def test_a_wrong_perft_is_told() -> None:
    with pytest.raises(AssertionError, match=r"perft\(2\) of 'the start' is 9, not 8"):
        check_game(NimGame(), perft={2: 8})


@pytest.mark.parametrize("in_place", [False, True], ids=["gives a new state", "gives its argument"])
def test_a_play_that_changes_its_argument_is_told(in_place: bool) -> None:
    class ListNim(NimGame):
        def parse(self, text: str | None = None) -> Any:
            return list(NimGame.parse(self, text))

        def play(self, state: Any, move_id: int) -> Any:
            after = list(NimGame.play(self, state, move_id))
            state[:] = after if in_place else (after[0], state[1])
            return state if in_place else after

    with pytest.raises(AssertionError, match="law broken in '12 A': play leaves its argument as it was"):
        check_game(ListNim())


@pytest.mark.parametrize(
    ("places", "mirrored", "holds"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], True),
        ([3, 2, 1, 0], [3, 2, 1, 0], True),
        ([3, 2, 1, 0], [0, 1, 2, 3], False),
        ([0, 1, 2, 3], [3, 2, 1, 0], False),
    ],
)
def test_moves_that_player_1_sees_elsewhere_than_the_board_are_told(
    places: list[int], mirrored: list[int], holds: bool
) -> None:
    class RowTokens(NimTokens):
        rows, cols = np.zeros(4, np.int16), np.arange(4, dtype=np.int16)
        turned = np.array(places), np.arange(len(NimTokens.symbols))

    moves = MoveVocabulary(
        texts=("a", "b", "c", "d"),
        source=np.full(4, -1, np.int16),
        target=np.arange(4, dtype=np.int16),
        kind=np.zeros(4, np.int16),
        num_kinds=1,
        mirrored=np.array(mirrored),
    )
    game = mutated(tokens=RowTokens(), moves=moves)
    if holds:
        check_moves(game)
    else:
        with pytest.raises(AssertionError, match=r"player 1 sees a move's target \(moves\.mirrored\) .* \(a b c\)"):
            check_moves(game)


class Heap(NimGame):
    """Nim of any number of matches, up to twelve."""

    def __init__(self, matches: str = "12", spec: str = "nim:matches={}") -> None:
        self.matches, self.spec = int(matches), spec.format(matches)

    def parse(self, text: str | None = None) -> tuple[int, int]:
        return super().parse(f"{self.matches} A" if text is None else text)


@pytest.mark.parametrize("spec", ["nim", "nim:matches=9", "nim:heap={}", "nim:{}"])
def test_a_specification_that_makes_another_game_is_told(monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    registry.load_game.cache_clear()
    monkeypatch.setitem(registry._registered, "games", {})
    registry.register("games", "nim")(Heap)
    check_game(Heap("8"), num_games=1)
    with pytest.raises(AssertionError, match="load_game makes the same game of spec again"):
        check_game(Heap("8", spec), num_games=1)
    registry.unregister("games", "nim")

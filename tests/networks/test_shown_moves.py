"""Moves shown on the board: against a slow reading of the definition, for every game."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

import genpolicy
from genpolicy.encoding import MoveVocabulary
from genpolicy.errors import ConfigError
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.shown_moves import ShownMoves
from genpolicy.networks.transformer import DenoisingTransformer
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner
from genpolicy.sequence import Layout

GAMES = ("chess", "shogi", "connect:rows=3,cols=3,k=3,gravity=false")
WIDTH = 8


def shown(layout: Layout, *, causal: bool = False, outcome: bool = True, counts: bool = True) -> ShownMoves:
    made = ShownMoves(layout, WIDTH, layout.num_symbols + 1, causal=causal, outcome=outcome, counts=counts)
    stream = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=stream)
    return made


def some_tokens(layout: Layout, num: int, seed: int = 0) -> Tensor:
    """Sequences with random symbols of each token, half of what is imagined masked."""
    draw = np.random.default_rng(seed)
    chances = layout.admitted[:, : layout.pad] / layout.admitted[:, : layout.pad].sum(1, keepdims=True)
    rows = [[draw.choice(layout.pad, p=p) for p in chances] for _ in range(num)]
    tokens = np.where((draw.random((num, layout.length)) < 0.5) & ~layout.given, layout.mask, np.array(rows))
    return torch.from_numpy(tokens)


def left_by(layout: Layout, row: list[int], ply: int, before: list[int]) -> list[int]:
    """What the move of a ply leaves of the symbols before it, as far as the tables of the game say."""
    tokens, moves, left = layout.tokenizer, layout.moves, list(before)
    action = layout.slot("action", ply)
    move = -1 if action is None else row[action.start] - layout.move_offset
    if not 0 <= move < len(moves):
        return left
    source, target = int(moves.source[move]), int(moves.target[move])
    if target >= 0 and source >= 0 and tokens.rows[source] >= 0:
        kind = int(moves.kind[move])
        left[target] = before[source] if tokens.promoted is None else int(tokens.promoted[kind, before[source]])
    if tokens.dropped is not None and source >= 0 and tokens.dropped[source] >= 0:
        piece, hand = int(tokens.dropped[source]), source
        if ply % 2:
            hand, piece = (int(table[index]) for table, index in zip(tokens.turned, (hand, piece), strict=True))
        fewer = [s for s in np.flatnonzero(tokens.admitted[hand]) if s < before[hand]]
        if fewer and tokens.admitted[hand, before[hand]]:
            left[hand] = int(fewer[-1])
        left[target] = piece
    if tokens.captured is None:
        return left
    place = int(tokens.captured[before[target]]) if target >= 0 else -1
    if place >= 0:
        more = [s for s in np.flatnonzero(tokens.admitted[place]) if s > before[place]]
        left[place] = int(more[0]) if more and tokens.admitted[place, before[place]] else before[place]
    return left


def counted(layout: Layout, before: list[int]) -> list[int]:
    """One more on every counter."""
    tokens, grown = layout.tokenizer, list(before)
    for counter in tokens.counters:
        held = [np.flatnonzero(tokens.admitted[place]).tolist() for place in counter]
        if any(before[place] not in symbols for place, symbols in zip(counter, held, strict=True)):
            continue
        number = 0
        for place, symbols in zip(counter, held, strict=True):
            number = number * len(symbols) + symbols.index(before[place])
        number += 1
        for place, symbols in zip(reversed(counter), reversed(held), strict=True):
            grown[place] = symbols[number % len(symbols)]
            number //= len(symbols)
    return grown


def by_definition(made: ShownMoves, layout: Layout, row: list[int], causal: bool) -> Tensor:
    """The features of one sequence, token by token."""
    x = torch.zeros(layout.length, WIDTH)
    num = layout.move_offset
    shared = (layout.tokenizer.rows >= 0) | (layout.tokenizer.hands >= 0)
    others = list(np.flatnonzero(~shared))
    known: dict[int, list[int]] = {}
    for slot in layout.slots:
        if slot.kind != "state":
            continue
        part = row[slot.start : slot.stop]
        before = known.get(slot.ply - 1)
        if not slot.given:
            assert before is not None
            assert made.carry is not None
            carried = left_by(layout, row, slot.ply - 1, before) if made.tells_outcome else before
            for place, symbol in enumerate(counted(layout, carried) if made.counters else carried):
                table = 0 if shared[place] else 1 + others.index(place)
                x[slot.start + place - causal] += made.carry[table * num + symbol]
        known[slot.ply] = [s if s < num else before[i] if before else s for i, s in enumerate(part)]
    for slot in layout.slots:
        move = row[slot.start] - num
        if slot.kind != "action" or not 0 <= move < len(layout.moves) or slot.ply not in known:
            continue
        source, target = int(layout.moves.source[move]), int(layout.moves.target[move])
        symbol = known[slot.ply][source] if source >= 0 else num
        starts = {s.ply: s.start for s in layout.slots if s.kind == "state"}
        leave_before, arrive_before, leave_after, arrive_after = made.marks
        if not causal:
            if source >= 0:
                x[starts[slot.ply] + source] += leave_before
            if target >= 0:
                x[starts[slot.ply] + target] += arrive_before + made.arriving[symbol]
        if slot.ply + 1 in starts:
            after = starts[slot.ply + 1] - causal
            assert made.places_told is not None
            assert made.symbols_told is not None
            length = layout.state_length
            onto = known[slot.ply][target] if target >= 0 else num
            x[after : after + length] += made.places_told[source if source >= 0 else length]
            x[after : after + length] += made.places_told[length + 1 + (target if target >= 0 else length)]
            x[after : after + length] += made.symbols_told[symbol] + made.symbols_told[num + 1 + onto]
            if source >= 0:
                x[after + source] += leave_after
            if target >= 0:
                x[after + target] += arrive_after + made.moved[symbol] + made.kinds[int(layout.moves.kind[move])]
    return x


@pytest.mark.parametrize(
    ("causal", "outcome", "counts"),
    [(False, True, True), (False, False, True), (False, True, False), (True, True, True)],
)
@pytest.mark.parametrize(("paradigm", "horizon"), [("s-asa", 3), ("s-avsav", 2), ("s-ass", 3), ("sa-v", 1)])
@pytest.mark.parametrize("game", GAMES)
def test_features_are_those_of_the_definition(
    game: str, paradigm: str, horizon: int, causal: bool, outcome: bool, counts: bool
) -> None:
    layout = Layout(genpolicy.load_game(game), paradigm, horizon)
    made, tokens = shown(layout, causal=causal, outcome=outcome, counts=counts), some_tokens(layout, 4)
    with torch.no_grad():
        ours = made(torch.zeros(4, layout.length, WIDTH), tokens)
    for row, features in zip(tokens.tolist(), ours, strict=True):
        torch.testing.assert_close(features, by_definition(made, layout, row, causal))


@pytest.mark.parametrize("game", GAMES)
def test_fewer_tokens_are_shown_the_same(game: str) -> None:
    layout = Layout(genpolicy.load_game(game), "s-avsav", 3)
    made, tokens = shown(layout), some_tokens(layout, 3)
    tokens[:, layout.slot("action", 1).start] = layout.mask  # type: ignore[union-attr]  # its board is beyond the cut
    with torch.no_grad():
        whole = made(torch.zeros(3, layout.length, WIDTH), tokens)
        for ply in (1, 2):
            end = Layout(genpolicy.load_game(game), "s-avsav", ply).length
            if ply == 1:
                tokens[:, layout.first_action] = layout.mask
                whole = made(torch.zeros(3, layout.length, WIDTH), tokens)
            torch.testing.assert_close(made(torch.zeros(3, end, WIDTH), tokens[:, :end]), whole[:, :end])


def test_what_has_nothing_to_show_has_no_weights_for_it() -> None:
    game = genpolicy.load_game("chess")
    shows = {
        name: ShownMoves.applies(Layout(game, name, 1 if name in ("s-a", "s-v", "sa-v") else 2))
        for name in ("s-a", "s-v", "sa-v", "s-aa", "s-asa", "s-ass", "s-avav", "s-avsav")
    }
    assert [name for name, there in shows.items() if there] == ["sa-v", "s-asa", "s-ass", "s-avsav"]


@pytest.mark.parametrize(
    ("geometry", "chosen", "there"),
    [("board", None, True), ("board", False, False), ("sequence", None, False), ("sequence", True, True)],
)
def test_the_choice_in_the_configuration(geometry: str, chosen: bool | None, there: bool) -> None:
    layout = Layout(genpolicy.load_game(GAMES[2]), "s-asa", 2)
    config = NetworkConfig(geometry=geometry, num_layers=1, width=16, num_heads=2, shown_moves=chosen)
    network = DenoisingTransformer(layout, config)
    assert (network.trunk.shown is not None) == there
    network(some_tokens(layout, 2), torch.ones(2))


@pytest.mark.parametrize(("chosen", "told"), [(None, True), (True, True), (False, False)])
def test_what_a_move_leaves_is_told_unless_switched_off(chosen: bool | None, told: bool) -> None:
    layout = Layout(genpolicy.load_game("shogi"), "s-asa", 2)
    config = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, shown_outcome=chosen)
    made = DenoisingTransformer(layout, config).trunk.shown
    assert made is not None
    assert made.tells_outcome is told


def test_what_a_drop_leaves_is_told_unless_switched_off() -> None:
    layout = Layout(genpolicy.load_game("shogi"), "s-asa", 2)
    for chosen in (None, True, False):
        config = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2, shown_pieces=chosen)
        made = DenoisingTransformer(layout, config).trunk.shown
        assert made is not None
        assert made.tells_pieces is (chosen is not False)
    with pytest.raises(ConfigError, match="part of shown_outcome, which is false"):
        NetworkConfig(geometry="board", shown_outcome=False, shown_pieces=True)


@pytest.mark.parametrize(("viewer", "alternates"), [("mover", True), ("absolute", True), ("mover", False)])
def test_drops_are_told_only_where_the_ply_says_whose_they_are(
    viewer: str, alternates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = genpolicy.load_game("shogi")
    monkeypatch.setattr(game, "alternates", alternates)
    network = NetworkConfig(geometry="board", num_layers=1, width=16, num_heads=2)
    config = DiffusionConfig(paradigm="s-asa", horizon=2, viewer=viewer, network=network)
    made = DiffusionLearner(game, config).network.trunk.shown
    assert made is not None
    assert made.tells_pieces is (viewer == "mover" and alternates)
    if not made.tells_pieces:
        asked = replace(config, network=replace(network, shown_pieces=True))
        with pytest.raises(ConfigError, match=r"shown_pieces=true: .*viewer=mover alone.* alternate"):
            DiffusionLearner(game, asked)


@pytest.mark.parametrize("key", ["shown_outcome", "shown_counts", "shown_pieces"])
def test_an_outcome_without_shown_moves_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} needs shown moves"):
        NetworkConfig(geometry="board", shown_moves=False, **{key: True})


@pytest.mark.parametrize(
    ("fen", "clock", "plies"),
    [("8/8/4k3/8/8/4K3/8/8 b - - 8 50", 9, 100), ("8/8/4k3/8/8/4K3/8/8 w - - 99 5000", 100, 9999)],
)
def test_what_counts_moves_in_chess_is_told_one_more(fen: str, clock: int, plies: int) -> None:
    game = genpolicy.load_game("chess")
    layout = Layout(game, "s-asa", 2, tokenizer=game.tokenizers["plies"])
    made = shown(layout)
    (row,) = layout.tokenizer.encode([game.parse(fen)]).astype(np.int64)
    grown = made._counted(torch.from_numpy(row)[None, None])[0, 0].numpy()
    after = row.copy()
    zero = row[71]  # a hundred thousand plies are not reached
    after[71:] = [zero + digit for digit in (0, *divmod(clock, 100), 0, *divmod(plies, 100))]
    assert grown.tolist() == after.tolist()


def test_a_capture_of_shogi_brings_the_piece_and_one_more_in_hand() -> None:
    game = genpolicy.load_game("shogi")
    state = game.parse("4k4/9/9/9/4+p4/4R4/9/9/4K4 b 2P 1")
    layout = Layout(game, "s-asa", 2)
    made, tokens = shown(layout), torch.full((1, layout.length), layout.mask)
    before = torch.from_numpy(game.tokens.encode([state])[0].astype(np.int64))
    after = torch.from_numpy(game.tokens.encode([game.play(state, game.moves.index("5f5e"))])[0].astype(np.int64))
    tokens[0, : layout.state_length] = before
    tokens[0, layout.first_action] = layout.move_offset + game.moves.index("5f5e")
    left = made._left_by(tokens[:, [layout.first_action]], before[None, None], torch.zeros(1, dtype=torch.long))[0, 0]
    differs = torch.nonzero(left != after).flatten().tolist()
    names = [(game.tokens.symbols[int(left[i])], game.tokens.symbols[int(after[i])]) for i in differs]
    assert names == [("R", "."), ("black", "white")]  # the square that is left, and who is to move, are learned


@pytest.mark.parametrize(
    ("ply", "sfen", "move"),
    [(0, "4k4/9/9/9/9/9/9/9/4K4 b 2B2p 1", "B*5e"), (1, "4k4/9/9/9/9/9/9/9/4K4 w 2Pb3p 1", "P*5e")],
)
def test_a_drop_of_shogi_brings_the_piece_and_leaves_one_less_in_hand(ply: int, sfen: str, move: str) -> None:
    game = genpolicy.load_game("shogi")
    state, drop = game.parse(sfen), game.moves.index(move)
    layout = Layout(game, "s-asa", 3)
    made = shown(layout)
    rows = game.tokens.encode([state, game.play(state, drop)], [0, 0]).astype(np.int64)
    before, after = torch.from_numpy(rows)
    made.turn_of = made.turn_of[ply:]
    left = made._left_by(
        torch.tensor([[layout.move_offset + drop]]), before[None, None], torch.zeros(1, dtype=torch.long)
    )[0, 0]
    assert torch.nonzero(left != after).flatten().tolist() == [81]  # who is to move is learned


@pytest.mark.parametrize(("ply", "move", "left"), [(0, "X", [1, 3, 6]), (1, "O", [2, 4, 5])])
def test_a_drop_is_of_its_players_hand_where_each_has_moves_of_its_own(ply: int, move: str, left: list[int]) -> None:
    """A square, and two men in the hand of X and of O each; the symbols are those of the square, then the counts."""
    admitted = np.array([[True] * 3 + [False] * 4, [False] * 3 + [True, True, False, False], [False] * 5 + [True] * 2])
    places, symbols = np.array([0, 2, 1]), np.array([0, 2, 1, 5, 6, 3, 4])
    tokens = SimpleNamespace(
        length=3,
        symbols=(".", "X", "O", "x0", "x1", "o0", "o1"),
        rows=np.array([0, -1, -1], np.int16),
        cols=np.array([0, -1, -1], np.int16),
        hands=np.array([-1, 0, 1], np.int16),
        admitted=admitted,
        captured=None,
        dropped=np.array([-1, 1, -1]),
        promoted=None,
        turned=(places, symbols),
        counters=(),
    )
    ends, kinds = (np.array(each, np.int16) for each in ([1, 2], [0, 0]))
    moves = MoveVocabulary(("X", "O"), ends, kinds, kinds, 1, np.array([1, 0]))
    made = shown(layout := Layout(cast("Any", SimpleNamespace(tokens=tokens, moves=moves)), "s-asa", 3))
    row = torch.full((1, layout.length), layout.mask)
    row[0, :3] = torch.tensor([0, 4, 6])
    action, state = layout.slot("action", ply), layout.slot("state", ply + 1)
    assert action is not None
    assert state is not None
    row[0, action.start] = layout.move_offset + moves.index(move)
    assert made.told_symbols(row)[0, state.start : state.stop].tolist() == left


@pytest.mark.parametrize(
    "game", [pytest.param(game, marks=[pytest.mark.thorough] * (game != "chess")) for game in GAMES]
)
def test_it_compiles_to_the_same(game: str) -> None:
    layout = Layout(genpolicy.load_game(game), "s-avsav", 2)
    made, tokens = shown(layout), some_tokens(layout, 3)
    x = torch.zeros(3, layout.length, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(made, backend="eager", fullgraph=True)(x, tokens), made(x, tokens))

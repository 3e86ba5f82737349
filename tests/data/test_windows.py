"""Windows against the rules of the game: a row says what its record says, drawn fairly and from nowhere else."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from genpolicy import load_game
from genpolicy.data.counter_rng import Shuffle, draw
from genpolicy.data.records import Dataset, Record
from genpolicy.data.stream import Share, ShuffledWindows
from genpolicy.data.window_source import CachedWindows, _symmetries, build_windows
from genpolicy.data.windows import COLUMNS, TokenBatch, WindowOptions, WindowSource
from genpolicy.errors import ConfigError, DatasetError
from genpolicy.game import Game
from genpolicy.sequence import Layout
from tests.small_datasets import CONNECT, solved_connect, write_dataset

pytestmark = pytest.mark.usefixtures("warm_start")

EMPTY = "3/3/3 x"


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return load_game(CONNECT)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return solved_connect(tmp_path_factory.mktemp("connect"))


def windows(dataset: Dataset, game: Game[Any], layout: Layout, split: str = "train", **options: Any) -> CachedWindows:
    return build_windows(dataset, split, game, layout, WindowOptions(**options))


def record(game: Game[Any], moves: str, line: str, **rest: Any) -> Record:
    """The position after some moves from the start, and what was found there."""
    state = game.parse()
    for move in moves.split():
        state = game.play(state, game.moves.index(move))
    return Record(state=game.format(state), line=line, split="train", **rest)


def read_row(game: Game[Any], layout: Layout, row: Any, viewer: int) -> dict[tuple[str, int], Any]:
    """A row in words: state texts, absolute move texts, "PAD" or "MASK", by kind and ply."""
    said: dict[tuple[str, int], Any] = {}
    for slot in layout.slots:
        ids = row[slot.start : slot.stop].numpy()
        names = {layout.pad: "PAD", layout.mask: "MASK"}
        if (ids == ids[0]).all() and int(ids[0]) in names:
            said[slot.kind, slot.ply] = names[int(ids[0])]
        elif slot.kind == "state":
            said[slot.kind, slot.ply] = game.format(game.tokens.decode(ids, viewer))
        elif slot.kind == "action":
            move = int(game.moves.seen_by(ids - layout.move_offset, viewer)[0])
            said[slot.kind, slot.ply] = game.moves[move]
        else:
            said[slot.kind, slot.ply] = int(ids[0]) - layout.value_offset
    return said


@pytest.mark.parametrize("viewer", ["mover", "absolute"])
@pytest.mark.parametrize("spec", [CONNECT, "chess"])
def test_a_row_is_the_line_played_on_the_board(spec: str, viewer: str, tmp_path: Path) -> None:
    if spec == "chess":
        pytest.importorskip("chess")
    game = load_game(spec)
    random = np.random.default_rng(3)
    records, truth = [], []
    for _ in range(20):
        state = game.parse()
        for _ in range(int(random.integers(0, 4))):
            state = game.play(state, int(random.choice(game.legal(state))))
        states, moves = [state], list[str]()
        while len(moves) < 4 and game.outcome(states[-1]) is None and len(game.legal(states[-1])):
            move = int(random.choice(game.legal(states[-1])))
            moves.append(game.moves[move])
            states.append(game.play(states[-1], move))
        records.append(Record(state=game.format(state), line=" ".join(moves), split="train"))
        truth.append(([game.format(s) for s in states], moves, game.player(state) if viewer == "mover" else 0))
    layout = Layout(game, "s-asa", 4)
    source = windows(write_dataset(tmp_path, game.spec, records), game, layout, viewer=viewer)
    batch = source.batch(np.arange(len(source)), 0)
    assert len(source) == 20
    for row, (states, moves, seen_by) in zip(batch.tokens, truth, strict=True):
        said = read_row(game, layout, row, seen_by)
        for ply, move in enumerate(moves):
            assert said["action", ply] == move
        for ply, text in enumerate(states[:4]):
            assert said["state", ply] == text
    assert bool((batch.frozen == torch.from_numpy(layout.given)).all())


def test_pad_after_the_end_and_mask_after_a_cut(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-asa", 4)
    line = "c1"  # X has a1 b1, wins at once
    ended = record(game, "a1 a2 b1 b2", line, ended=True)
    cut = record(game, "a1", "b2 a2")
    dataset = write_dataset(tmp_path, game.spec, [ended, cut])
    batch = windows(dataset, game, layout).batch(np.arange(2), 0)
    said = read_row(game, layout, batch.tokens[0], 0)
    assert said["action", 0] == "c1"
    assert said["state", 1] == game.format(game.play(game.parse(ended.state), game.moves.index("c1")))
    assert [said[key] for key in [("action", 1), ("state", 2), ("action", 2), ("state", 3)]] == ["PAD"] * 4
    said = read_row(game, layout, batch.tokens[1], 1)
    assert [said["action", 0], said["action", 1]] == ["b2", "a2"]
    assert said["state", 2] not in ("PAD", "MASK")
    assert [said[key] for key in [("action", 2), ("state", 3), ("action", 3)]] == ["MASK"] * 3

    length = game.tokens.length
    assert batch.target.sum(1).tolist() == [1 + length, 2 + 2 * length]  # neither PAD nor what is unlabelled
    padded = windows(dataset, game, layout, train_pad=True).batch(np.arange(2), 0)
    assert padded.target.sum(1).tolist() == [4 + 3 * length, 2 + 2 * length]


def test_values_are_bins_of_the_win_probability(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-avsav", 2)
    scores = ("value:1", None)
    dataset = write_dataset(tmp_path, game.spec, [record(game, "a1", "b2 a2", scores=scores)])
    said = read_row(game, layout, windows(dataset, game, layout).batch(np.arange(1), 0).tokens[0], 1)
    assert said["value", 0] == 127
    assert said["value", 1] == "MASK"
    even = write_dataset(tmp_path / "even", game.spec, [record(game, "a1", "b2 a2", scores=("value:0", "value:-1"))])
    said = read_row(game, layout, windows(even, game, layout).batch(np.arange(1), 0).tokens[0], 1)
    assert (said["value", 0], said["value", 1]) == (63, 0)  # Ruoss et al.: an even position is in bin 63 of 128


def best_of(dataset: Dataset) -> dict[str, dict[str, set[str]]]:
    """Best moves by split and state text, straight from the records."""
    found: dict[str, dict[str, set[str]]] = {"train": {}, "test": {}}
    for r in dataset.records():
        values = {move: float(score.removeprefix("value:")) for move, score in r.scored_moves.items()}
        found[str(r.split)][r.state] = {m for m, v in values.items() if v == max(values.values())}
    return found


@pytest.mark.parametrize(
    ("viewer", "augment"),
    [
        *(("mover", True), ("absolute", False)),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in (("mover", False), ("absolute", True))),
    ],
)
def test_redrawn_windows_are_best_play_and_stay_in_their_split(
    dataset: Dataset, game: Game[Any], viewer: str, augment: bool
) -> None:
    layout = Layout(game, "s-asa", 4)
    source = windows(dataset, game, layout, viewer=viewer, redraw=True, augment=augment)
    train, held_out = best_of(dataset)["train"], best_of(dataset)["test"]
    first, second = (source.batch(np.arange(len(source)), epoch).tokens for epoch in (0, 1))
    cut = full = 0
    states = [r.state for r in dataset.records("train")]
    assert len(states) == len(source)
    for row, text in zip(second[::4], states[::4], strict=True):
        mover = game.player(game.parse(text))  # no symmetry changes it
        said = read_row(game, layout, row, 0 if viewer == "absolute" else mover)
        assert augment or said["state", 0] == text
        for ply in range(4):
            state, move = said["state", ply], said["action", ply]
            if state in ("PAD", "MASK"):
                assert move == state
                continue
            board = game.parse(state)
            if game.outcome(board) is not None:
                assert move == "PAD"
            elif move == "MASK":
                assert state in held_out  # every position has a record, so only those are unlabelled
                cut += 1
                break
            else:
                assert move in train[state]
                if ply < 3:
                    assert said["state", ply + 1] == game.format(game.play(board, game.moves.index(move)))
                full += 1
    assert cut
    assert full > 1200
    assert not bool((first == second).all())


def test_redrawn_chess_moves_are_seen_by_the_viewer(tmp_path: Path) -> None:
    pytest.importorskip("chess")
    chess = load_game("chess")
    start = chess.parse()
    after = chess.play(start, chess.moves.index("e2e4"))
    equal = "c7c5=cp:-30 e7e5=cp:-30 a7a6=cp:-90"
    records = [
        Record(chess.format(start), line="e2e4", move_values="e2e4=cp:30 d2d4=cp:29", split="train"),
        Record(chess.format(after), line="e7e5", move_values=equal, split="train"),
    ]
    layout = Layout(chess, "s-asa", 2)
    source = windows(write_dataset(tmp_path, "chess", records), chess, layout, redraw=True)
    for viewer, first, index in [(0, "e2e4", 0), (1, None, 1)]:
        answers = set()
        for epoch in range(40):
            said = read_row(chess, layout, source.batch(np.array([index]), epoch).tokens[0], viewer)
            board = chess.parse(said["state", 0])
            child = chess.play(board, chess.moves.index(said["action", 0]))
            assert said["state", 1] == chess.format(child)
            answers.add(said["action", 1 - index])
        assert answers == {"c7c5", "e7e5"}  # White's answer is Black's own draw, walked to from White's record
        assert first is None or said["action", 0] == first


def test_every_tied_move_is_drawn_as_often(dataset: Dataset, game: Game[Any]) -> None:
    layout = Layout(game, "s-a", 1)
    source = windows(dataset, game, layout, redraw=True)
    best = best_of(dataset)["train"]
    states = [r.state for r in dataset.records("train")]
    index = max(range(len(states)), key=lambda i: len(best[states[i]]))
    counts: Counter[str] = Counter()
    for epoch in range(900):
        row = source.batch(np.array([index]), epoch).tokens[0]
        viewer = game.player(game.parse(states[index]))
        counts[read_row(game, layout, row, viewer)["action", 0]] += 1
    expected = 900 / len(best[states[index]])
    assert set(counts) == best[states[index]]
    # Chi-square with at most 8 degrees of freedom exceeds 26.1 once in a thousand draws; the draws are fixed.
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 26.1


def test_a_window_does_not_depend_on_the_rest_of_its_batch(dataset: Dataset, game: Game[Any]) -> None:
    source = windows(dataset, game, Layout(game, "s-asa", 3), redraw=True, augment=True)
    together = source.batch(np.arange(200), 5)
    alone = source.batch(np.array([17]), 5)
    assert bool((together.tokens[17] == alone.tokens[0]).all())
    assert bool((together.target[17] == alone.target[0]).all())


def test_augmentation_shows_every_symmetric_copy(dataset: Dataset, game: Game[Any]) -> None:
    layout = Layout(game, "s-a", 1)
    source = windows(dataset, game, layout, augment=True)
    states = [r.state for r in dataset.records("train")]
    state = game.parse(states[40])
    copies = {game.format(state), *(game.format(s.state(state)) for s in game.symmetries)}
    viewer = game.player(state)
    seen = {read_row(game, layout, source.batch(np.array([40]), e).tokens[0], viewer)["state", 0] for e in range(100)}
    assert seen == copies


def test_augmentation_of_few_records_turns_every_square(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-asa", 2)
    values = " ".join(f"{game.moves[int(move)]}=value:0" for move in game.legal(game.parse()))
    lone = record(game, "", "b2 a1", move_values=values)
    source = windows(write_dataset(tmp_path, game.spec, [lone]), game, layout, redraw=True, augment=True)
    for epoch in range(40):
        said = read_row(game, layout, source.batch(np.array([0]), epoch).tokens[0], 0)
        assert said["state", 1] == game.format(game.play(game.parse(), game.moves.index(said["action", 0])))


def test_without_move_values_redrawing_keeps_the_line(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-asa", 2)
    dataset = write_dataset(tmp_path, game.spec, [record(game, "a1", "b2 a2"), record(game, "", "b2 a1")])
    plain = windows(dataset, game, layout).batch(np.arange(2), 3)
    redrawn = windows(dataset, game, layout, redraw=True).batch(np.arange(2), 3)
    assert bool((plain.tokens == redrawn.tokens).all())


def test_own_line_goes_on_where_no_split_knows_the_position(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-asa", 3)
    values = {"a1": "value:0", "b2": "value:0"}
    lone = record(game, "c3", "b2 a1 c1", move_values=" ".join(f"{m}={v}" for m, v in values.items()))
    source = windows(write_dataset(tmp_path, game.spec, [lone]), game, layout, redraw=True)
    seen = set()
    for epoch in range(30):
        said = read_row(game, layout, source.batch(np.array([0]), epoch).tokens[0], 1)
        assert said["state", 1] not in ("PAD", "MASK")  # the rules say what it is
        seen.add((said["action", 0], said["action", 1], said["state", 2] == "MASK", said["action", 2]))
    assert seen == {("b2", "a1", False, "c1"), ("a1", "MASK", True, "MASK")}


def test_own_line_ends_where_another_split_holds_the_position(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-asa", 4)
    lone = record(game, "", "b2 a1 c1 a3", move_values="b2=value:0")
    held_out = Record(record(game, "b2 a1", "").state, line="c1", split="test")
    source = windows(write_dataset(tmp_path, game.spec, [lone, held_out]), game, layout, redraw=True)
    said = read_row(game, layout, source.batch(np.array([0]), 0).tokens[0], 0)
    assert [said["action", ply] for ply in range(4)] == ["b2", "a1", "MASK", "MASK"]
    assert said["state", 2] == held_out.state
    assert said["state", 3] == "MASK"


@pytest.mark.parametrize("paradigm", ["s-avav", "s-avsav"])
def test_redrawing_leaves_a_record_with_a_value_alone_as_it_is(paradigm: str, game: Game[Any], tmp_path: Path) -> None:
    values = [
        Record(record(game, moves, "").state, scores=("value:0.5",), split="train") for moves in ("a1", "b2", "a1 b2")
    ]
    labelled = [
        record(game, "", "b2 a1 c1", move_values="b2=value:0"),
        record(game, "b2", "a1", move_values="a1=value:0"),
    ]
    layout = Layout(game, paradigm, 2)
    dataset = write_dataset(tmp_path, game.spec, [*values[:2], *labelled, values[2]])
    alone = np.array([0, 1, 4])
    own = windows(dataset, game, layout).batch(alone, 0)
    redrawn = windows(dataset, game, layout, redraw=True)
    assert bool((own.tokens == redrawn.batch(alone, 0).tokens).all())
    assert bool((own.target == redrawn.batch(alone, 0).target).all())
    assert read_row(game, layout, redrawn.batch(np.array([2]), 0).tokens[0], 0)["action", 1] == "a1"


def test_illegal_line_is_named(game: Game[Any], tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, game.spec, [record(game, "", "b2"), record(game, "a1", "a1")])
    with pytest.raises(DatasetError, match=r"record train 1 .*illegal"):
        windows(dataset, game, Layout(game, "s-a", 1))


def test_unlabelled_records_give_no_window(game: Game[Any], tmp_path: Path) -> None:
    records = [record(game, "", "b2"), Record(state=record(game, "a1", "").state, split="train")]
    assert len(windows(write_dataset(tmp_path / "a", game.spec, records), game, Layout(game, "s-a", 1))) == 1
    with pytest.raises(DatasetError, match="none of them labelled"):
        windows(write_dataset(tmp_path / "b", game.spec, records[1:]), game, Layout(game, "s-a", 1))


def test_wrong_game_viewer_or_split(dataset: Dataset, game: Game[Any], tmp_path: Path) -> None:
    other = load_game("connect:rows=4,cols=4,k=4,gravity=true")
    with pytest.raises(DatasetError, match="records of game"):
        windows(dataset, other, Layout(other, "s-a", 1))
    with pytest.raises(ConfigError, match="viewer"):
        windows(dataset, game, Layout(game, "s-a", 1), viewer="white")
    with pytest.raises(DatasetError, match="no records"):
        windows(dataset, game, Layout(game, "s-a", 1), split="validation")


def played_records(game: Game[Any]) -> list[Record]:
    """A game in which x wins, some of its positions searched, and a position that nobody played from."""
    whole = {"result": 1.0, "game_id": "g"}
    return [
        record(game, "", "b2", played="b2", policy="b2=0.75 a1=0.25", value=0.5, **whole),
        record(game, "b2", "a2", played="a2", value=-0.25, **whole),
        record(game, "b2 a2", "c3", played="a1", policy="c3=1", **whole),
        record(game, "a1", "b2"),
    ]


@pytest.mark.parametrize("viewer", ["mover", "absolute"])
def test_windows_keep_what_the_records_say_besides_the_line(game: Game[Any], tmp_path: Path, viewer: str) -> None:
    dataset = write_dataset(tmp_path, game.spec, played_records(game))
    source = windows(dataset, game, Layout(game, "s-a", 1), viewer=viewer, columns=COLUMNS)
    every = np.arange(4)
    played, policy, result, value = (source.column(name, every, 0) for name in COLUMNS)
    ids = {text: game.moves.index(text) for text in ("a1", "a2", "b2", "c3")}  # every viewer sees these moves alike
    assert played.tolist() == [ids["b2"], ids["a2"], ids["a1"], -1]
    assert result.tolist()[:3] == [1, -1, 1]  # of the player to move; the record's is player 0's
    assert np.isnan(result[3])
    assert value.tolist()[:2] == [0.5, -0.25]
    assert np.isnan(value[2:]).all()
    assert policy.shape == (4, len(game.moves))
    assert policy[0, [ids["b2"], ids["a1"]]].tolist() == [0.75, 0.25]
    assert policy.sum(1).tolist() == [1, 0, 1, 0]
    order = np.array([2, 0, 2, 3])
    assert source.column("policy", order, 0).tolist() == policy[order].tolist()


def test_moves_of_the_columns_are_those_that_the_viewer_sees(tmp_path: Path) -> None:
    chess = load_game("chess")
    state = chess.play(chess.parse(), chess.moves.index("e2e4"))
    row = Record(state=chess.format(state), line="e7e5", played="e7e5", policy="c7c5=0.5 e7e5=0.5", split="train")
    dataset, layout = write_dataset(tmp_path, "chess", [row]), Layout(chess, "s-a", 1)
    for viewer, moves in (("mover", ["e2e4", "c2c4"]), ("absolute", ["e7e5", "c7c5"])):
        source = windows(dataset, chess, layout, viewer=viewer, columns=("played", "policy"))
        assert source.column("played", np.array([0]), 0).tolist() == [chess.moves.index(moves[0])]
        shares = source.column("policy", np.array([0]), 0)[0]
        assert sorted(np.flatnonzero(shares).tolist()) == sorted(chess.moves.index(move) for move in moves)


def test_columns_are_turned_with_their_window(game: Game[Any], tmp_path: Path) -> None:
    """The move that is labelled, played and searched is one and the same, so it is under every symmetry."""
    rows = [record(game, "", move, played=move, policy=f"{move}=1") for move in ("a1", "b1", "c2")]
    dataset, layout = write_dataset(tmp_path, game.spec, rows), Layout(game, "s-a", 1)
    source = windows(dataset, game, layout, augment=True, columns=("played", "policy"))
    seen = set()
    for epoch in range(40):
        shown = source.batch(np.arange(3), epoch).tokens[:, layout.first_action].numpy() - layout.move_offset
        assert source.column("played", np.arange(3), epoch).tolist() == shown.tolist()
        assert source.column("policy", np.arange(3), epoch).argmax(1).tolist() == shown.tolist()
        seen.add(int(shown[0]))
    assert {game.moves[move] for move in seen} == {"a1", "a3", "c1", "c3"}


def test_columns_that_are_wrong_or_were_not_asked_for(game: Game[Any], tmp_path: Path) -> None:
    layout = Layout(game, "s-a", 1)
    dataset = write_dataset(tmp_path / "a", game.spec, played_records(game))
    with pytest.raises(ConfigError, match="built without column 'result': name it in WindowOptions"):
        windows(dataset, game, layout, columns=("value",)).column("result", np.arange(1), 0)
    with pytest.raises(ConfigError, match="no column 'elo'; there are: played, policy, result, value"):
        windows(dataset, game, layout, columns=("elo",))
    for wrong, column in (("z9=1", "policy"), ("a1=much", "policy"), ("z9", "played")):
        bad = write_dataset(tmp_path / wrong, game.spec, [record(game, "", "b2", **{column: wrong})])
        assert len(windows(bad, game, layout)) == 1
        with pytest.raises(DatasetError, match=r"record train 0 .*(not a move|could not convert)"):
            windows(bad, game, layout, columns=(column,))


@pytest.mark.parametrize(
    ("column", "wrong", "message"),
    [
        *(("policy", f"a1=0.5 b2={share}", "policy 'b2=.*outside") for share in ("nan", "inf", "-1", "2")),
        *((name, number, f"its {name} is .*outside") for name in ("value", "result") for number in (7.0, -math.inf)),
    ],
)
def test_numbers_that_are_none_of_a_search_are_refused(
    game: Game[Any], tmp_path: Path, column: str, wrong: Any, message: str
) -> None:
    bad = write_dataset(tmp_path / "bad", game.spec, [record(game, "", "b2", **{column: wrong})])
    with pytest.raises(DatasetError, match=f"record train 0 .*{message}"):
        windows(bad, game, Layout(game, "s-a", 1), columns=(column,))


def test_a_learner_trains_on_results(game: Game[Any], tmp_path: Path) -> None:
    """A source of its own over the cached windows: positions and who won."""

    @dataclass(frozen=True)
    class Results(TokenBatch):
        result: torch.Tensor

    class ResultWindows(WindowSource):
        def __init__(self, source: CachedWindows) -> None:
            self.source = source

        def __len__(self) -> int:
            return len(self.source)

        def batch(self, indices: Any, epoch: int) -> Results:
            tokens = self.source.batch(indices, epoch)
            result = torch.from_numpy(self.source.column("result", indices, epoch))
            return Results(**vars(tokens), result=result)

    dataset = write_dataset(tmp_path, game.spec, played_records(game)[:3])
    source = ResultWindows(windows(dataset, game, Layout(game, "s-a", 1), columns=("result",)))
    stream = ShuffledWindows(source, 0)
    stream.begin(Share(6))
    (batch,) = stream.parts(0)
    assert isinstance(batch, Results)
    assert sorted(batch.result.tolist()) == [-1, -1, 1, 1, 1, 1]
    players = [game.player(game.parse(r.state)) for r in played_records(game)]
    for index, result in zip(batch.indices.tolist(), batch.result.tolist(), strict=True):
        assert result == (-1 if players[index] else 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_shuffle_is_a_permutation_that_epochs_and_seeds_change(n: int) -> None:
    shuffle = Shuffle(n, seed=1)
    images = [shuffle(np.arange(n), epoch) for epoch in range(3)]
    assert all(sorted(image) == list(range(n)) for image in images)
    one_by_one = [int(shuffle(np.array([i]), 2)[0]) for i in range(min(n, 50))]
    assert one_by_one == images[2][:50].tolist()
    if n > 10:
        others = [images[1], Shuffle(n, seed=2)(np.arange(n), 0), np.arange(n)]
        # Two random permutations agree in one place on average.
        assert all((images[0] == other).sum() < 10 for other in others)


@pytest.mark.parametrize("positions", [[-1], [5], [0, 1 << 40], [4, -(1 << 62)]])
def test_shuffle_refuses_positions_that_do_not_exist(positions: list[int]) -> None:
    with pytest.raises(IndexError, match=r"positions lie in 0\.\.4, got"):
        Shuffle(5, seed=1)(np.array(positions), 0)
    assert len(Shuffle(5, seed=1)(np.array([], np.int64), 0)) == 0


def test_draws_are_uniform_and_unrelated() -> None:
    windows_, n = np.arange(60_000), 6
    first = draw(1, 0, windows_, 0, np.full(60_000, n))
    second = draw(1, 0, windows_, 1, np.full(60_000, n))
    pairs = np.bincount(first * n + second, minlength=n * n)
    expected = 60_000 / (n * n)
    # 35 degrees of freedom: above 66.6 once in a thousand.
    assert ((pairs - expected) ** 2 / expected).sum() < 66.6


def test_a_symmetry_of_moves_is_turned_for_the_second_player() -> None:
    """Move m is mirrored[m] to player 1, and so is what becomes of it."""

    class Arrays:
        def array(self, name: str) -> Any:
            return np.array([[[-1, 0]], [[0, 0]]])  # the identity and symmetry 0, of one place

    class Turning:
        moves = type("", (), {"mirrored": np.array([3, 2, 1, 0]), "__len__": lambda self: 4})()
        symmetries = (type("", (), {"moves": np.array([1, 2, 0, 3])}),)
        spec = "turning"

    cache, turning = Arrays(), Turning()
    _, images = _symmetries(cache, turning)  # type: ignore[arg-type]
    assert images[0].tolist() == [[0, 1, 2, 3]] * 2
    assert images[1, 0].tolist() == [1, 2, 0, 3]
    for move in range(4):
        assert images[1, 1, turning.moves.mirrored[move]] == turning.moves.mirrored[images[1, 0, move]]

"""Chance where games are played: tournaments, self-play, the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import genpolicy
from genpolicy import cli
from genpolicy.data.records import Dataset, Record
from genpolicy.game import Game
from genpolicy.policies.base import Decision, Policy, load_policy
from genpolicy.values import score_to_value
from genpolicy_arena.adjudication import Adjudication
from genpolicy_arena.match import GameResult, GameTask, Match
from genpolicy_arena.openings import Opening, draw_random
from genpolicy_common.labelled import labelled_positions
from genpolicy_play.terminal import TerminalGame, self_play
from genpolicy_play.web.positions import ReplayCache, described

PIG = "pig:goal=12"


@pytest.fixture(scope="module")
def game() -> Game[Any]:
    return genpolicy.load_game(PIG)


def dice_of(game: Game[Any], start: str, moves: tuple[str, ...]) -> list[str]:
    """The faces of a game; all its moves are legal."""
    state, faces = game.parse(start), []
    for text in moves:
        if game.chance(state) is not None:
            faces.append(text)
        state = game.play(state, game.moves.index(text))
    assert game.outcome(state) is not None
    return faces


def test_a_tournament_throws_the_dice(game: Game[Any]) -> None:
    openings = draw_random(game, 6, 4, 1, reuse=True)  # some end while the die is in the air
    players = {"a": load_policy("random", game=game), "b": load_policy("mcts:rollout?simulations=8", game=game)}

    def played(seed: int) -> list[GameResult]:
        results: list[GameResult] = []
        tasks = [GameTask(i, i, f"{i}", "a", "b", opening) for i, opening in enumerate(openings)]
        Match(game, players, Adjudication(), None, seed).play(tasks, results.append)
        return sorted(results, key=lambda each: each.number)

    first, again, other = played(1), played(1), played(2)
    assert [each.moves for each in first] == [each.moves for each in again]
    assert [each.moves for each in first] != [each.moves for each in other]
    assert all(each.ended == "rules" for each in first)
    faces = [face for each in first for face in dice_of(game, each.start, each.moves)]
    assert set(faces) == set("123456")
    # Games of one opening have dice of their own.
    start = Opening(game.format(game.parse()), (), "start")
    results: list[GameResult] = []
    Match(game, players, Adjudication(), None, 1).play(
        [GameTask(i, i, f"{i}", "a", "a", start) for i in range(8)], results.append
    )
    assert len({dice_of(game, each.start, each.moves)[0] for each in results}) > 1


class Sure(Policy):
    """Rolls once and holds, sure that player 0 wins, or without a value."""

    kind: ClassVar[str] = "sure"

    def __init__(self, game: Game[Any], *, says: bool = True) -> None:
        self.game, self.says = game, says

    def decide(self, states: Sequence[Any]) -> list[Decision]:
        hold, roll = (self.game.moves.index(move) for move in ("hold", "roll"))
        return [
            Decision(
                hold if hold in self.game.legal(state) else roll,
                value=(1 - 2 * self.game.player(state)) if self.says else None,
            )
            for state in states
        ]


@pytest.mark.parametrize("says", [False, True])
def test_dice_begin_the_agreement_of_values_anew(game: Game[Any], says: bool) -> None:
    start, results = Opening(game.format(game.parse()), (), "start"), list[GameResult]()
    players = {"one": Sure(game), "other": Sure(game, says=says)}
    tasks = [GameTask(i, i, f"{i}", "one", "other", start) for i in range(4)]
    Match(game, players, Adjudication(win=(0.9, 2)), None, 0).play(tasks, results.append)
    assert [each.ended for each in results] == ["rules"] * 4


def test_one_players_values_are_no_agreement() -> None:
    rules = Adjudication(win=(0.9, 2), draw=(0.1, 2, 0))
    assert rules.agreed([(0, 0.95), (0, 0.95)], 2) is None
    assert rules.agreed([(1, 0.0), (1, 0.0)], 2) is None
    assert rules.agreed([(0, 0.95), (1, None), (0, 0.95)], 3) is None
    agreed = rules.agreed([(0, 0.95), (1, 0.95)], 2)
    assert agreed is not None
    assert agreed[0] == 1.0


def test_selfplay_keeps_natures_rows_without_a_label(game: Game[Any], tmp_path: Path) -> None:
    words = ["data", "selfplay", "--game", PIG, "--oracle", "pig", "--games", "6", "--horizon", "2", "--seed", "1"]
    for name in ("one", "two"):
        assert cli.main([*words, "--out", str(tmp_path / name)]) == 0
    one, two = (Dataset.open(tmp_path / name) for name in ("one", "two"))
    records = [record for split in one.splits for record in one.records(split)]
    assert records == [record for split in two.splits for record in two.records(split)]
    natural = [record for record in records if game.chance(game.parse(record.state)) is not None]
    assert 0 < len(natural) < len(records)
    assert all(record.line is None and record.played in set("123456") for record in natural)
    assert all(record.line for record in records if record not in natural)
    split = max(one.splits, key=lambda name: one.splits[name])
    for position in labelled_positions(one, game, split):
        assert game.chance(position.state) is None


@pytest.mark.parametrize("limits", [["--adjudicate", "0.6:2"], ["--max-plies", "4"]], ids=["decided", "long"])
def test_a_game_is_judged_by_a_label_that_knows_the_dice(game: Game[Any], tmp_path: Path, limits: list[str]) -> None:
    words = ["data", "selfplay", "--game", PIG, "--oracle", "pig", "--games", "40", "--random-plies", "0:0", *limits]
    assert cli.main([*words, "--error-rate", "0:0", "--out", str(tmp_path / "played")]) == 0
    games: dict[str | None, list[Record]] = {}
    for record in Dataset.open(tmp_path / "played").records():
        games.setdefault(record.game_id, []).append(record)
    num_judged = 0
    for rows in games.values():
        end = game.play(game.parse(rows[-1].state), game.moves.index(rows[-1].played or ""))
        if game.outcome(end) is not None:
            continue
        num_judged += 1
        assert rows[-1].line is not None, "nothing is thrown after the last label"
        if limits[0] == "--adjudicate":
            for row in [row for row in rows if row.line is not None][-2:]:
                side = 1 if game.player(game.parse(row.state)) == 0 else -1
                assert side * score_to_value(row.scores[0] or "") * (row.result or 0) >= 0.6
    assert num_judged > 5


def test_labelling_again_leaves_natures_rows_as_they_are(game: Game[Any], tmp_path: Path) -> None:
    oracle = ["--oracle", "policy:random", "--horizon", "1"]
    words = ["data", "selfplay", "--game", PIG, *oracle, "--games", "4", "--out", str(tmp_path / "played")]
    assert cli.main(words) == 0
    assert cli.main(["data", "label", str(tmp_path / "played"), *oracle, "--out", str(tmp_path / "again")]) == 0
    played, again = (list(Dataset.open(tmp_path / name).records()) for name in ("played", "again"))
    natural = [number for number, each in enumerate(played) if game.chance(game.parse(each.state)) is not None]
    assert natural
    assert [again[number] for number in natural] == [played[number] for number in natural]
    assert all((record.line is None) == (number in natural) for number, record in enumerate(again))


def test_windows_skip_natures_rows(game: Game[Any], tmp_path: Path) -> None:
    from genpolicy.data.window_source import build_windows
    from genpolicy.sequence import Layout

    words = ["data", "selfplay", "--game", PIG, "--oracle", "pig", "--games", "8", "--horizon", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "d")]) == 0
    dataset = Dataset.open(tmp_path / "d")
    source = build_windows(dataset, "train", game, Layout(game, "s-a", 1))
    labelled = sum(record.line is not None for record in dataset.records("train"))
    assert len(source) == labelled < dataset.splits["train"]


def test_all_positions_are_imported_without_natures(game: Game[Any], tmp_path: Path) -> None:
    assert cli.main(["data", "import", "all", "--game", "pig:goal=5", "--out", str(tmp_path / "d")]) == 0
    small, dataset = genpolicy.load_game("pig:goal=5"), Dataset.open(tmp_path / "d")
    states = [small.parse(record.state) for split in dataset.splits for record in dataset.records(split)]
    assert states
    assert all(small.chance(state) is None for state in states)


def test_the_terminal_throws_the_dice(game: Game[Any]) -> None:
    shown: list[str] = []
    lines = iter(["roll", "undo", "roll", "hold", "quit"])
    TerminalGame(
        game,
        load_policy("random", game=game),
        (0, 1),
        game.parse(),
        read=lambda _: next(lines),
        write=shown.append,
        seed=4,
    ).run()
    thrown = [line for line in shown if line.startswith("chance: ")]
    assert len(thrown) == 2
    policy = load_policy("random?seed=1", game=game)
    games = []
    for _ in range(2):
        policy.seed(1)
        moves, ending = self_play((policy, policy), game.parse(), seed=5)
        games.append(moves)
        assert ending.winner in (0, 1)
    assert games[0] == games[1]


def test_the_engine_refuses_a_game_that_no_gui_plays(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["engine", "--policy", "random", "--game", PIG]) == 2
    assert "has no engine protocol" in capsys.readouterr().err


def test_the_page_is_told_what_was_thrown(game: Game[Any]) -> None:
    cache = ReplayCache(game)
    drawn = {described(game, cache.replay(None, ["roll"]), "", flip=False)["drawn"] for _ in range(60)}
    assert drawn <= set("123456")
    assert len(drawn) > 3
    assert "drawn" not in described(game, cache.replay(None, []), "", flip=False)

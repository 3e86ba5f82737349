"""Labelling and self-play through the command: killed at any moment they go on without loss or repetition."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import chess
import pytest

import genpolicy
from genpolicy import cli
from genpolicy.data.records import Dataset
from genpolicy.registry import load
from genpolicy.values import score_to_value
from genpolicy_labelling.selfplay import SelfplayConfig
from tests.data.journal_files import entries_of, num_answered

pytestmark = pytest.mark.usefixtures("warm_start")

GAME = genpolicy.load_game("chess")
TIC_TAC_TOE = "connect:rows=3,cols=3,k=3,gravity=false"


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "genpolicy", *map(str, words)]


def run(*words: object) -> None:
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def lines_of(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def roots_of(log: Path) -> list[str]:
    """Texts of the positions that were searched themselves, not as the end of another's line."""
    lines = log.read_text().splitlines() if log.exists() else []
    lines = [line for line in lines if line.startswith("position fen ") and " moves " not in line]
    return [line.removeprefix("position fen ") for line in lines]


def answered_in(folder: Path) -> set[str]:
    """Marks of the positions that the journal of a data set holds an answer to."""
    answers = {value["position"] for table, _, value in entries_of(folder) if table == "answers"}
    return answers | {
        mark(row["state"]) for table, _, unit in entries_of(folder) if table == "units" for row in unit["rows"]
    }


def mark(fen: str) -> str:
    """By which the journal knows the position that it has an answer to."""
    return hashlib.blake2b(GAME.key(GAME.parse(fen)), digest_size=4).hexdigest()


def run_with_kills(words: list[object], folder: Path, every: int, log: Path) -> int:
    """Run a command, kill -9 each time ``every`` more answers stand in the journal; how many kills it took.

    Nothing that the journal held an answer to at a kill may be searched after it.
    """
    answered: list[tuple[int, set[str]]] = []
    while True:
        process = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        before = num_answered(folder)
        while process.poll() is None and num_answered(folder) < before + every:
            time.sleep(0.002)
        if process.poll() is not None:
            assert process.returncode == 0, process.stderr.read()
            break
        process.kill()
        process.wait()
        time.sleep(0.1)  # the engines end with it
        answered.append((len(roots_of(log)), answered_in(folder)))
        assert len(answered) < 40, "it does not get on"
    searched = [mark(fen) for fen in roots_of(log)]
    for start, done in answered:
        assert done
        assert not set(searched[start:]) & done, "an answered position was searched again"
    # At a kill, two searches of each of the two processes are on their way.
    assert sum(Counter(searched).values()) - len(set(searched)) <= 2 * 2 * len(answered)
    return len(answered)


@pytest.fixture
def positions(tmp_path) -> Path:
    """A hundred distinct positions, imported."""
    file = tmp_path / "positions.epd"
    board = chess.Board()
    texts = []
    for i in range(100):
        moves = sorted(map(str, board.legal_moves))
        board.push_uci(moves[i * 7 % len(moves)])
        texts.append(board.fen())
    file.write_text("\n".join(texts))
    run("data", "import", file, "--game", "chess", "--out", tmp_path / "positions")
    return tmp_path / "positions"


@pytest.mark.slow  # tests/faults kills it, too, with a quicker oracle
def test_killed_labelling_goes_on(tmp_path, positions, fake_engine) -> None:
    oracle = f"{fake_engine(sleep_s=0.01)}?nodes=5&processes=2"
    words = ["data", "label", positions, "--oracle", oracle, "--horizon", 6, "--out"]
    run(*words, tmp_path / "whole")
    log = Path(oracle.partition("?")[0]).parent / "positions"
    log.unlink()
    assert run_with_kills([*words, tmp_path / "killed"], tmp_path / "killed", 17, log) >= 3
    whole, killed = Dataset.open(tmp_path / "whole"), Dataset.open(tmp_path / "killed")
    assert killed.checksum == whole.checksum
    records = list(killed.records())
    assert [r.state for r in records] == [r.state for r in Dataset.open(positions).records()]
    assert all(record.line for record in records)


@pytest.mark.slow
def test_killed_selfplay_goes_on(tmp_path, fake_engine) -> None:
    oracle = f"{fake_engine(sleep_s=0.005)}?nodes=5&processes=2"
    words = ["data", "selfplay", "--game", "chess", "--oracle", oracle, "--games", 7, "--horizon", 2]
    words += ["--max-plies", 30, "--error-rate", "0.1:0.4", "--seed", 5, "--split", "0.5/0.25/0.25", "--out"]
    run(*words, tmp_path / "whole")
    log = Path(oracle.partition("?")[0]).parent / "positions"
    log.unlink()
    assert run_with_kills([*words, tmp_path / "killed"], tmp_path / "killed", 29, log) >= 3
    whole, killed = Dataset.open(tmp_path / "whole"), Dataset.open(tmp_path / "killed")
    assert killed.checksum == whole.checksum
    records = list(killed.records())
    ids = [(record.game_id, record.ply) for record in records]
    assert len(set(ids)) == len(ids)
    assert len({game for game, _ in ids}) == 7
    check_games(records, 30)


@pytest.fixture
def logged_stockfish(tmp_path, stockfish) -> Path:
    """Stockfish behind a script that writes down what it is asked, in ``asked`` beside it."""
    folder = tmp_path / "logged"
    folder.mkdir()
    path = folder / "stockfish"
    path.write_text(f"#!/bin/sh\ntee -a '{folder}/asked' | '{stockfish}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param("label", marks=pytest.mark.thorough),  # tests/faults kills it by default, with a quicker oracle
        pytest.param("selfplay", marks=pytest.mark.slow),
    ],
)
def test_stockfish_killed_at_random_moments_answers_nothing_twice(tmp_path, positions, logged_stockfish, verb) -> None:
    oracle = ["--oracle", f"{logged_stockfish}?nodes=8000&processes=2", "--horizon", 6, "--out", tmp_path / "d"]
    if verb == "label":
        words = ["data", "label", positions, *oracle]
    else:
        words = ["data", "selfplay", "--game", "chess", "--games", 6, "--max-plies", 18, "--seed", 3, *oracle]
    asked, draw, kills = logged_stockfish.with_name("asked"), random.Random(verb), []
    for number in range(40):
        process = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        before, wanted = num_answered(tmp_path / "d"), draw.randint(0, 30)
        while process.poll() is None and number < 8 and num_answered(tmp_path / "d") < before + wanted:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.05)
        if number == 8 or process.poll() is not None:
            assert process.wait(60) == 0, process.stderr.read()
            break
        process.kill()
        process.wait()
        time.sleep(0.3)
        kills.append((len(roots_of(asked)), answered_in(tmp_path / "d")))
    assert len(kills) >= 4
    searched = [mark(fen) for fen in roots_of(asked)]
    for start, done in kills:
        assert not set(searched[start:]) & done
    assert len(searched) - len(set(searched)) <= 2 * 2 * len(kills)
    records = list(Dataset.open(tmp_path / "d").records())
    assert {mark(record.state) for record in records} == set(searched)
    assert all(record.line for record in records)
    if verb == "label":
        assert [r.state for r in records] == [r.state for r in Dataset.open(positions).records()]
    else:
        assert len({(record.game_id, record.ply) for record in records}) == len(records)
        assert len({record.game_id for record in records}) == 6
        check_games(records, 18)


def test_an_interrupt_says_how_to_go_on(tmp_path, fake_engine) -> None:
    engine = fake_engine(sleep_s=0.02)
    words = ["data", "selfplay", "--game", "chess", "--oracle", f"{engine}?nodes=5", "--games", 40, "--out"]
    process = subprocess.Popen(command(*words, tmp_path / "d"), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not num_answered(tmp_path / "d"):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "what is finished is safe" in said
    assert f"genpolicy data selfplay --game chess --oracle '{engine}?nodes=5' --games 40" in said
    assert "Traceback" not in said
    assert num_answered(tmp_path / "d") >= 1


def check_games(records, max_plies: int) -> None:
    """By the rules library alone: each game's rows replay, and its result is that of its last position."""
    games: dict[str, list] = {}
    for record in records:
        games.setdefault(record.game_id, []).append(record)
    for rows in games.values():
        assert [row.ply for row in rows] == list(range(len(rows)))
        assert len({row.split for row in rows}) == 1
        assert len({row.result for row in rows}) == 1
        board = chess.Board(rows[0].state)
        for row in rows:
            assert row.state == board.fen(en_passant="legal")
            board.push_uci(row.played)
        if board.is_checkmate():
            assert rows[0].result == (-1.0 if board.turn == chess.WHITE else 1.0)
        elif board.is_game_over() or board.can_claim_draw():
            assert rows[0].result == 0.0
        else:
            assert len(rows) == max_plies
            value = score_to_value(rows[-1].scores[0]) * (1 if board.turn == chess.BLACK else -1)
            assert rows[0].result == (0.0 if abs(value) < 0.98 else (1.0 if value > 0 else -1.0))


def test_one_search_serves_the_move_and_the_label(tmp_path, fake_engine) -> None:
    path = fake_engine()
    out = tmp_path / "d"
    words = ["data", "selfplay", "--game", "chess", "--oracle", f"{path}?nodes=5", "--games", 2, "--horizon", 1]
    run(*words, "--max-plies", 20, "--error-rate", "0:0", "--out", out)
    records = list(Dataset.open(out).records())
    assert all(record.played == record.line for record in records)  # horizon 1, no errors
    assert lines_of(path.parent / "searches") == len(records)


def test_error_rate_is_the_rate_of_random_moves(tmp_path, fake_engine) -> None:
    words = ["data", "selfplay", "--game", "chess", "--oracle", f"{fake_engine()}?nodes=5", "--positions", 300]
    run(*words, "--horizon", 1, "--max-plies", 40, "--error-rate", "0.5:0.5", "--out", tmp_path / "d")
    records = list(Dataset.open(tmp_path / "d").records())
    assert 300 <= len(records) < 300 + 40
    # A random move is the best one now and then: about one in thirty.
    differs = sum(record.played != record.line for record in records) / len(records)
    assert 0.38 < differs < 0.58


def test_selfplay_is_the_same_with_any_number_of_processes(tmp_path, fake_engine) -> None:
    engine = fake_engine()
    checksums = set()
    for processes in (1, 3):
        words = ["data", "selfplay", "--game", "chess", "--oracle", f"{engine}?nodes=5", "--processes", processes]
        run(*words, "--positions", 60, "--max-plies", 25, "--horizon", 2, "--out", tmp_path / f"d{processes}")
        checksums.add(Dataset.open(tmp_path / f"d{processes}").checksum)
    assert len(checksums) == 1


def test_positions_without_a_label_are_kept_counted_and_said(tmp_path, fake_engine, capsys) -> None:
    file = tmp_path / "p.epd"
    file.write_text("8/5k2/8/8/3K4/8/4P3/8 w - - 0 1\nr3k3/8/8/8/8/8/8/4K2R w - - 0 1\n")
    assert cli.main(["data", "import", str(file), "--game", "chess", "--out", str(tmp_path / "p")]) == 0
    words = ["data", "label", str(tmp_path / "p"), "--horizon", "1", "--out", str(tmp_path / "d")]
    assert cli.main([*words, "--oracle", f"{fake_engine('dies on rooks')}?nodes=5"]) == 0
    assert "failed 3 times" in capsys.readouterr().err
    dataset = Dataset.open(tmp_path / "d")
    assert [record.line is None for record in dataset.records()] == [True, False]
    assert dataset.info.counts["tallies"] == {"unlabelled": 1}
    assert dataset.info.counts["labelled"] == 1
    words = ["data", "label", str(tmp_path / "p"), "--horizon", "1", "--out", str(tmp_path / "e")]
    assert cli.main([*words, "--oracle", f"{fake_engine('always dies')}?nodes=5"]) == 2
    assert "no position could be labelled" in capsys.readouterr().err


def test_oracle_that_labels_nothing_is_given_up(tmp_path, capsys, fake_engine) -> None:
    pawns = ["P7", "PP6", "PPP5", "PPPP4", "5PPP", "6PP", "7P", "1P6", "2P5"]
    (tmp_path / "p.epd").write_text("".join(f"4k3/8/8/8/8/8/{rank}/4K3 w - - 0 1\n" for rank in pawns))
    out, labelled = str(tmp_path / "p"), str(tmp_path / "d")
    assert cli.main(["data", "import", str(tmp_path / "p.epd"), "--game", "chess", "--out", out]) == 0
    words = ["data", "label", out, "--horizon", "1", "--out", labelled, "--oracle"]
    broken = fake_engine("always dies")
    good = broken.read_text().replace("MODE = 'always dies'", "MODE = 'good'")
    assert cli.main([*words, f"{broken}?nodes=5"]) == 2
    assert "none of the first 8 positions could be labelled" in capsys.readouterr().err
    assert len((broken.parent / "searches").read_text().splitlines()) <= 3 * 8
    broken.write_text(good)  # once mended, the same command labels every position
    assert cli.main([*words, f"{broken}?nodes=5"]) == 0
    assert all(record.line is not None for record in Dataset.open(tmp_path / "d").records())


def test_positions_without_a_label_after_a_kill_do_not_make_a_sound_oracle_useless(tmp_path, fake_engine) -> None:
    """An undisturbed run labels the rooks first, and so does not give up at the pawns."""
    ranks = [f"{file}{piece}{7 - file}".replace("0", "") for piece in "rp" for file in range(8)]
    texts = [f"k7/8/8/{rank}/8/{rank}/8/7K w - - 0 1" for rank in ranks]
    texts += [f"k7/8/8/8/{rank}/{rank}/8/7K w - - 0 1" for rank in ranks]
    (tmp_path / "p.epd").write_text("\n".join(sorted(texts, key=lambda text: "p" in text)))
    run("data", "import", tmp_path / "p.epd", "--game", "chess", "--out", tmp_path / "p")
    words = ["data", "label", tmp_path / "p", "--horizon", 1, "--out", tmp_path / "d", "--oracle"]
    engine = fake_engine("dies on rooks")
    process = subprocess.Popen(command(*words, f"{engine}?nodes=5"), stderr=subprocess.DEVNULL)
    while process.poll() is None and not any(table == "units" for table, _, _ in entries_of(tmp_path / "d")):
        time.sleep(0.002)
    process.kill()
    process.wait()
    run(*words, f"{engine}?nodes=5")
    records = list(Dataset.open(tmp_path / "d").records())
    assert [record.line is None for record in records] == ["p" in record.state for record in records]


def test_solver_labels_a_whole_game(tmp_path, capsys) -> None:
    out = tmp_path / "all"
    assert cli.main(["data", "import", "all", "--game", TIC_TAC_TOE, "--out", str(out)]) == 0
    words = ["data", "label", str(out), "--oracle", "solver", "--horizon", "9", "--out", str(tmp_path / "d")]
    assert cli.main([*words, "--json", str(tmp_path / "counts.json")]) == 0
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.num_records == 4520  # 5478 positions less 958 in which the game is over
    game = genpolicy.load_game(TIC_TAC_TOE)
    for record in dataset.records():
        state = game.parse(record.state)
        for move in record.moves:
            state = game.play(state, game.moves.index(move))
        assert record.ended
        assert game.outcome(state) is not None
        scores = {move: score_to_value(score) for move, score in record.scored_moves.items()}
        assert scores[record.moves[0]] == max(scores.values()) == score_to_value(record.scores[0])
    facts = json.loads((tmp_path / "counts.json").read_text())
    assert facts["records"] == 4520
    assert facts["counts"]["leakage"]["test"]["in_training"] == 0


def test_finished_work_is_not_done_again(tmp_path, fake_engine) -> None:
    engine = fake_engine()
    words = ["data", "selfplay", "--game", "chess", "--oracle", f"{engine}?nodes=5", "--games", 1, "--max-plies", 5]
    run(*words, "--out", tmp_path / "d")
    before = lines_of(engine.parent / "searches")
    run(*words, "--out", tmp_path / "d")
    assert lines_of(engine.parent / "searches") == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error_rate": (0.5, 0.2)}, "error rate"),
        ({"error_rate": (0.5, 1.2)}, "error rate"),
        ({"random_plies": (-1, 2)}, "random plies"),
        ({"horizon": 0}, "horizon"),
        ({"adjudicate": (1.5, 2)}, "adjudicate"),
    ],
)
def test_bad_selfplay_settings(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        SelfplayConfig(**changes)


def test_adjudication_ends_decided_games(tmp_path, capsys) -> None:
    words = ["data", "selfplay", "--game", TIC_TAC_TOE, "--oracle", "solver", "--games", "30", "--random-plies", "3:4"]
    assert cli.main([*words, "--adjudicate", "1:2", "--out", str(tmp_path / "d")]) == 0
    game = genpolicy.load_game(TIC_TAC_TOE)
    games: dict[str, list] = {}
    for record in Dataset.open(tmp_path / "d").records():
        games.setdefault(record.game_id, []).append(record)
    num_cut = 0
    for rows in games.values():
        last = game.parse(rows[-1].state)
        end = game.play(last, game.moves.index(rows[-1].played))
        if game.outcome(end) is None:
            num_cut += 1
            for row in rows[-2:]:
                player = game.player(game.parse(row.state))
                assert score_to_value(row.scores[0]) * (1 if player == 0 else -1) == row.result
    assert num_cut > 3


def test_an_adjudicated_winner_does_not_lose_the_win_with_the_last_move(tmp_path, capsys) -> None:
    words = ["data", "selfplay", "--game", TIC_TAC_TOE, "--oracle", "solver", "--games", "60", "--random-plies", "0:2"]
    assert cli.main([*words, "--error-rate", "0.5:0.5", "--adjudicate", "1:1", "--out", str(tmp_path / "d")]) == 0
    game = genpolicy.load_game(TIC_TAC_TOE)
    last = {record.game_id: record for record in Dataset.open(tmp_path / "d").records()}
    ends = [(game.play(game.parse(r.state), game.moves.index(r.played)), r.result) for r in last.values()]
    ends = [(state, result) for state, result in ends if game.outcome(state) is None]
    lines = load("oracles", "solver")(game).analyse([state for state, _ in ends], 1)
    assert len(ends) > 20
    for (state, result), line in zip(ends, lines, strict=True):
        assert score_to_value(line.scores[0]) == (result if game.player(state) == 0 else -result)


def test_real_games_go_through(tmp_path, stockfish, capsys) -> None:
    pgn = '[Event "a"]\n[Result "1-0"]\n\n1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4. Qxf7# 1-0\n'
    (tmp_path / "games.pgn").write_text(pgn)
    folder, out = str(tmp_path / "games"), str(tmp_path / "labelled")
    assert cli.main(["data", "import", str(tmp_path / "games.pgn"), "--game", "chess", "--out", folder]) == 0
    assert cli.main(["data", "label", folder, "--oracle", "stockfish?nodes=3000", "--horizon", "4", "--out", out]) == 0
    records = list(Dataset.open(out).records())
    assert [record.played for record in records] == ["e2e4", "e7e5", "f1c4", "b8c6", "d1h5", "g8f6", "h5f7"]
    assert [record.result for record in records] == [1.0] * 7
    assert records[-1].line == "h5f7"
    assert records[-1].ended
    assert records[-1].scores == ("mate:1",)
    assert all(len(record.moves) == 4 for record in records[:5])
    assert cli.main(["data", "info", out, "--json", str(tmp_path / "info.json")]) == 0
    assert json.loads((tmp_path / "info.json").read_text())["oracle"]["limits"] == {"nodes": 3000}


def test_kept_scores_keep_their_scale(tmp_path, positions, fake_engine, capsys) -> None:
    """Of a part that is labelled anew, the rest would be read by the new oracle's scale."""
    path = fake_engine()
    label = ["data", "label", str(positions), "--oracle", f"{path}?nodes=5&scale=0.01"]
    assert cli.main([*label, "--out", str(tmp_path / "first")]) == 0
    again = ["data", "label", str(tmp_path / "first"), "--share", "0.5", "--out", str(tmp_path / "second")]
    assert cli.main([*again, "--oracle", f"{path}?nodes=5&scale=0.002"]) == 2
    assert "whose centipawns are of scale 0.01, and the oracle's are of 0.002" in capsys.readouterr().err
    assert cli.main([*again, "--oracle", f"{path}?nodes=5&scale=0.01"]) == 0


def test_a_file_beside_finished_shards_is_left_alone(tmp_path, capsys) -> None:
    words = ["data", "selfplay", "--game", TIC_TAC_TOE, "--oracle", "solver", "--games", "2"]
    words += ["--out", str(tmp_path / "d")]
    assert cli.main(words) == 0
    for name in ("analysis.parquet", "records-mine.parquet"):
        (tmp_path / "d" / name).write_text("mine")
    assert cli.main(words) == 0
    assert (tmp_path / "d" / "analysis.parquet").read_text() == (tmp_path / "d" / "records-mine.parquet").read_text()


def test_adjudication_without_values_is_refused(tmp_path, capsys) -> None:
    words = ["data", "selfplay", "--game", TIC_TAC_TOE, "--oracle", "policy:random", "--games", "2"]
    assert cli.main([*words, "--adjudicate", "0.5:2", "--out", str(tmp_path / "d")]) == 2
    assert "--adjudicate goes by values, and the oracle gives none" in capsys.readouterr().err

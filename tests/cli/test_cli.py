"""The command: what it imports, what it says when something is wrong, and its small subcommands."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import genpolicy
from genpolicy import cli
from genpolicy.registry import available
from tests.small_datasets import CONNECT, solved_connect

pytestmark = pytest.mark.usefixtures("warm_start")

COMMANDS = [name for name in available("commands") if "." not in name]


def run(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "genpolicy"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run in this process; it must fail with one message on stderr, which is returned."""
    assert cli.main(arguments) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert len(out.err.splitlines()) == 1, out.err
    assert out.err.startswith("genpolicy: error: ")
    return out.err


@pytest.mark.usefixtures("cold_start")
@pytest.mark.parametrize("arguments", ["['--help']", "['--version']", "['evaluate', '--help']", "['play', '--help']"])
def test_help_imports_no_torch_and_no_game(arguments: str) -> None:
    games = "'genpolicy_chess', 'genpolicy_connect', 'genpolicy_shogi'"
    heavy = f"{{'torch', 'diffusers', 'pyarrow', 'chess', 'cshogi', {games}}}"
    done = run(
        code=f"import sys; from genpolicy import cli; code = cli.main({arguments}); "
        f"print(sorted({heavy} & set(sys.modules))); sys.exit(code)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_names_every_subcommand_and_each_has_its_own() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert run("--version").stdout.strip() == f"genpolicy {genpolicy.__version__}"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"usage: genpolicy {name}" in capsys.readouterr().out


def test_no_subcommand_shows_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: genpolicy" in capsys.readouterr().out


def test_misspelt_subcommand_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no subcommand 'evalaute'. Did you mean: 'evaluate'?" in fails(capsys, "evalaute")


def test_usage_errors_are_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["perft", "--game", "chess"]) == 2
    assert "--depth" in capsys.readouterr().err
    assert cli.main(["evaluate"]) == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad thing"), "bad thing"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.pgn"), "x.pgn: No such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", "y"), "y: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (genpolicy.errors.EngineError("engine 'z' hangs"), "engine 'z' hangs"),
        (genpolicy.errors.RegistryError("no game 'q'"), "no game 'q'"),
    ],
)
def test_errors_a_user_can_meet_are_one_message(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", raises)
    assert message in fails(capsys, "games")
    assert cli.main(["games", "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_our_own_bugs_show_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(arguments: list[str]) -> int:
        raise KeyError("a bug")

    monkeypatch.setattr(cli, "_dispatch", raises)
    with pytest.raises(KeyError):
        cli.main(["games"])


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_dispatch", interrupted)
    assert cli.main(["games"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_other_signals_end_a_command_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process was gone at once: nothing was said, and a temporary folder stayed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        monkeypatch.setattr(cli, "_dispatch", lambda arguments, number=number: signal.raise_signal(number))
        assert cli.main(["games"]) == 128 + number
        assert f"genpolicy: stopped by {number.name}\n" in capsys.readouterr().err
        assert signal.getsignal(number) == signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not cli.main(["games"])  # nohup stays in force
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_ctrl_c_while_the_process_ends_shows_no_traceback() -> None:
    code = (
        "import atexit, os, signal; from genpolicy import cli; stop = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "atexit.register(stop); cli._dispatch = lambda arguments: stop(); raise SystemExit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "\ngenpolicy: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_obstacle(closed: str) -> None:
    code = "import os; from genpolicy import cli; cli.main(); assert os.open('.', 0) > 2"
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} games {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_pipe_is_quiet() -> None:
    """The reader leaves after one line of thousands."""
    play = "play --policy random --game connect --self-play 4000"
    script = f"set -o pipefail; {sys.executable} -m genpolicy {play} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("game 1")
    assert done.stderr == ""
    assert done.returncode == 141


def test_games_and_policies_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["games", "--json", str(tmp_path / "games.json")]) == 0
    games = {row["game"]: row for row in json.loads((tmp_path / "games.json").read_text())["games"]}
    assert (games["connect"]["moves"], games["connect"]["state_tokens"]) == (7, 43)  # columns; squares and the side
    if "error" not in games["chess"]:
        assert games["chess"]["moves"] == 1968
    assert "1968" in capsys.readouterr().out
    assert cli.main(["policies", "--json", str(tmp_path / "policies.json")]) == 0
    rows = json.loads((tmp_path / "policies.json").read_text())["policies"]
    assert {"diffusion", "one_step", "random", "engine", "oracle"} <= {row["policy"] for row in rows}
    for row in rows:
        assert row["about"].endswith("."), "a whole sentence, on the first line of the class"
        assert "``" not in row["about"], row
        assert not re.search(r"\w+Policy\b|; see ", row["about"]), "what a user reads names no class"


@pytest.mark.parametrize(
    ("game", "position", "depth", "nodes"),
    [
        ("chess", None, 3, 8902),  # https://www.chessprogramming.org/Perft_Results
        ("chess", "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", 2, 2039),  # the same page
        (CONNECT, None, 5, 9 * 8 * 7 * 6 * 5),  # no line of three can be complete before the fifth stone
    ],
)
def test_perft(
    game: str, position: str | None, depth: int, nodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if game == "chess":
        pytest.importorskip("chess")
    file = tmp_path / "perft.json"
    at = [] if position is None else ["--position", position]
    assert cli.main(["perft", "--game", game, "--depth", str(depth), *at, "--divide", "--json", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(nodes)
    figures = json.loads(file.read_text())
    assert figures["nodes"] == nodes == sum(figures["divide"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["perft", "--game", "ches", "--depth", "1"], "Did you mean: 'chess'"),
        (["perft", "--game", CONNECT, "--depth", "0"], "--depth must be at least 1, got 0"),
        (["perft", "--game", CONNECT, "--depth", "1", "--position", "nonsense"], "nonsense"),
        (["evaluate", "accuracy", "--policy", "random", "--data", "no/such"], "no/such"),
        (["play", "--policy", "random"], "name one"),
        (["play", "--policy", "random", "--game", CONNECT, "--color", "green"], "--color 'green' is not a side"),
        (["play", "--policy", "random", "--game", CONNECT, "--opponent", "random"], "--self-play"),
        (["play", "--policy", "random", "--game", CONNECT, "--self-play", "0"], "at least 1 game"),
        (["play", "--policy", "no/such/policy"], "no/such/policy: no such folder"),
        (["play", "--policy", "random", "--game", CONNECT, "--show-lines"], "--show-lines needs --self-play"),
        (["play", "--policy", "random", "--game", CONNECT, "--max-plies", "3"], "--max-plies needs --self-play"),
        (
            ["play", "--policy", "random", "--game", CONNECT, "--color", "X", "--self-play", "1"],
            "give only one of them",
        ),
        (["play", "--policy", "random?seed=x", "--game", CONNECT, "--seed", "-3"], "--seed must not be negative"),
        (["play", "--policy", "oracle:solver?horizon=x", "--game", CONNECT], "option horizon is a whole number, got"),
        (["play", "--policy", "oracle:solver?nodes=3", "--game", CONNECT], "'solver' takes no option 'nodes'"),
        (["perft", "--game", "connect:gravity=maybe", "--depth", "1"], "gravity must be true or false (yes, no, 1, 0)"),
        (["perft", "--game", "chess:foo=3", "--depth", "1"], "no argument 'foo'. It takes: none"),
        (["evaluate", "futures", "--policy", "random", "--data", "d", "--plot", "x.foo"], "name must end in one of"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in fails(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "accuracy", "--policy", "", "--data", "d"],
        ["evaluate", "accuracy", "--policy", "random", "--data", ""],
        ["evaluate", "accuracy", "--policy", "random", "--data="],
        ["play", "--policy", ""],
        ["train", "--config", ""],
        ["train", "--out", "", "trainer.max_steps=1"],
        ["games", "--json", ""],
        ["data", "label", "", "--oracle", "solver", "--out", "x"],
    ],
    ids=" ".join,
)
def test_empty_arguments_do_not_mean_this_folder(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is a shell variable unset?" in fails(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def test_an_empty_policy_is_refused_by_the_library_too() -> None:
    with pytest.raises(genpolicy.errors.RegistryError, match="the policy is empty"):
        genpolicy.load_policy("", game=CONNECT)


def test_the_help_tells_of_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "--traceback " in capsys.readouterr().out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_connect(tmp_path_factory.mktemp("data"), every=20).folder


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Untrained policies of both kinds."""
    from genpolicy.networks import NetworkConfig
    from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, SamplerConfig
    from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner

    game = genpolicy.load_game(CONNECT)
    folder = tmp_path_factory.mktemp("policies")
    network = NetworkConfig(num_layers=1, width=16, num_heads=2)
    sampler = SamplerConfig(num_steps=3)
    diffusion = DiffusionLearner(game, DiffusionConfig(network=network, horizon=2, sampler=sampler))
    diffusion.policy().save_pretrained(folder / "s-asa")
    OneStepLearner(game, OneStepConfig(network=network)).policy().save_pretrained(folder / "s-a")
    return [str(folder / "s-asa"), str(folder / "s-a")]


def test_evaluate_accuracy_shows_what_a_learner_measures(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from genpolicy.networks import NetworkConfig
    from genpolicy_policy_baselines.policy_value import PolicyValueConfig, PolicyValueLearner

    config = PolicyValueConfig(
        network=NetworkConfig(geometry="board", head="typed", num_layers=1, width=16, num_heads=2)
    )
    folder = PolicyValueLearner(genpolicy.load_game(CONNECT), config).policy().save_pretrained(tmp_path / "judge")
    file = tmp_path / "own.json"
    arguments = ["--data", str(data), "--limit", "20", "--own", "--json", str(file)]
    assert cli.main(["evaluate", "accuracy", "--policy", str(folder), "random", *arguments]) == 0
    own = json.loads(file.read_text())["own"]
    assert own["random"] == {}
    assert own["judge"]
    printed = capsys.readouterr().out
    (name, value), *_ = own["judge"].items()
    assert f"judge: {name} {value:.4g}" in printed
    assert "random: measures nothing more" in printed
    assert "plies_error" not in printed, "no record is of a game, so no plies are left to be measured"


def test_evaluate_accuracy(data: Path, policies: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The solver is always right; each way of playing has a row; the same seed gives the same figures."""
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for file in files:
        arguments = ["--data", str(data), "--limit", "12", "--json", str(file), "--markdown", str(tmp_path / "t.md")]
        assert cli.main(["evaluate", "accuracy", "--policy", *policies, "oracle:solver", *arguments]) == 0
    figures = json.loads(files[0].read_text())
    rows = {(row["policy"], row["mode"]): row for row in figures["policies"]}
    assert set(rows) == {("s-asa", "one_call"), ("s-asa", "easy_first 3"), ("s-a", ""), ("oracle:solver", "")}
    assert rows["oracle:solver", ""]["best"]["accuracy"] == 1.0
    assert rows["oracle:solver", ""]["raw_legal"] is None
    assert rows["s-asa", "easy_first 3"]["network_calls"] == 3.0
    assert 0 <= rows["s-asa", "one_call"]["raw_legal"]["accuracy"] <= 1
    assert figures["data"]["positions"] == 12
    assert rows["oracle:solver", ""]["times_random"] == pytest.approx(1 / figures["random"]["best"])
    markdown = (tmp_path / "t.md").read_text()
    assert "| random legal move |" in markdown
    assert "s-asa (easy_first 3)" in capsys.readouterr().out

    def without_clock(file: Path) -> Any:
        made = json.loads(file.read_text())
        for row in made["policies"]:
            del row["ms_per_position"]
        return made

    assert without_clock(files[0]) == without_clock(files[1])


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_files_of_results_are_looked_at_before_the_work(
    option: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from genpolicy_evaluation import accuracy

    monkeypatch.setattr(accuracy, "measure_accuracy", lambda *args, **options: pytest.fail("the work began"))
    base = ["evaluate", "accuracy", "--policy", "random", "--data", str(data), option]
    missing = tmp_path / "new" / "figures"
    assert f"{option} {missing}: there is no folder {missing.parent}; make it first" in fails(
        capsys, *base, str(missing)
    )
    assert not missing.parent.exists()
    assert f"{option} {tmp_path}: is a folder; name a file in it" in fails(capsys, *base, str(tmp_path))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and access(path, mode))
    assert "you may not write to it; name another file" in fails(capsys, *base, str(tmp_path / "figures"))
    assert not list(tmp_path.iterdir())


def test_options_that_take_several_files_are_looked_at_too(tmp_path: Path) -> None:
    pictures = [tmp_path / "a.png", tmp_path / "new" / "b.png"]
    cli.check_output("--plot", pictures[0])
    with pytest.raises(ValueError, match=r"--plot \S+b\.png: there is no folder"):
        cli.check_outputs(argparse.Namespace(plot=pictures, json=None))


def test_two_options_do_not_name_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would overwrite the first; the null device takes both."""
    monkeypatch.chdir(tmp_path)
    named = argparse.Namespace(json=Path("a"), markdown=tmp_path / "a")
    with pytest.raises(ValueError, match=r"--markdown \S+a: --json names it, too; name another file"):
        cli.check_outputs(named)
    cli.check_outputs(argparse.Namespace(json=Path(os.devnull), markdown=Path(os.devnull)))
    assert not list(tmp_path.iterdir())


def test_figures_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A limit on the size of files, set from outside, stops the write in the middle as a full disk does."""
    file = tmp_path / "games.json"
    file.write_text("figures of yesterday")
    code = (
        "import resource, sys; from genpolicy import cli; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    done = run("games", "--json", str(file), code=code)
    assert done.returncode == 2
    assert "genpolicy: error: " in done.stderr
    assert "File too large" in done.stderr
    assert file.read_text() == "figures of yesterday"
    assert [path.name for path in tmp_path.iterdir()] == ["games.json"]


def test_figures_may_go_to_a_pipe() -> None:
    done = run("perft", "--game", CONNECT, "--depth", "1", "--json", "/dev/stdout")
    assert done.returncode == 0, done.stderr
    assert '"nodes": 9' in done.stdout


def test_options_that_no_policy_takes_are_refused_before_the_work(
    data: Path, policies: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["evaluate", "accuracy", "--data", str(data), "--limit", "3", "--policy"]
    for option in (["--sampler", "easy_first"], ["--num-steps", "2"]):
        for measure in ("accuracy", "boards", "latency"):
            message = fails(capsys, "evaluate", measure, *base[2:], policies[1], *option)
            assert f"{option[0]}: none of these policies has that option: s-a (one_step); omit it" in message
    assert "Did you mean: 'easy_first'?" in fails(capsys, *base, policies[0], "--sampler", "easy_frst")
    assert "num_steps must be 1..20" in fails(capsys, *base, policies[0], "--num-steps", "99")
    assert "option temperature is a number, got 'x'" in fails(capsys, *base, f"{policies[1]}?temperature=x")
    assert cli.main([*base, *policies, "--num-steps", "2"]) == 0
    assert "--num-steps is not an option of s-a; they play without it" in capsys.readouterr().err


def test_evaluate_with_other_samplers(data: Path, policies: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    options = ["--sampler", "ancestral", "--sampler", "a0_last", "--num-steps", "2", "--limit", "5", "--no-raw"]
    command = ["evaluate", "accuracy", "--policy", *policies, "--data", str(data)]
    assert cli.main([*command, *options, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["policies"]
    assert [row["mode"] for row in rows] == ["one_call", "ancestral 2", "a0_last 2", ""]
    assert rows[1]["raw_legal"] is None


def test_evaluate_futures(data: Path, policies: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, plot = tmp_path / "f.json", tmp_path / "f.svg"
    options = ["--data", str(data), "--limit", "12", "--oracle", "solver", "--json", str(file), "--plot", str(plot)]
    assert cli.main(["evaluate", "futures", "--policy", policies[0], "oracle:solver?horizon=3", *options]) == 0
    rows = {(row["policy"], row["mode"]): row["steps"] for row in json.loads(file.read_text())["policies"]}
    assert len(rows["s-asa", "easy_first 3"]) == 2
    perfect = rows["oracle:solver?horizon=3", ""]
    for step in perfect[1:]:
        assert {step[name]["accuracy"] for name in ("valid_state", "match", "match_board")} == {1.0}
    for step in perfect:
        assert {step[name]["accuracy"] for name in ("valid_action", "best_action")} <= {1.0, None}
    assert plot.read_text().startswith("<?xml")


def test_an_oracle_that_judges_is_made_as_one_that_labels(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("evaluate", "futures", "--policy", "random", "--data", str(data), "--oracle", "solver?nodes=3")
    assert "oracle 'solver?nodes=3' takes no option 'nodes'" in fails(capsys, *words)


def test_a_policy_of_another_game_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from genpolicy.networks import NetworkConfig
    from genpolicy_policy_baselines.one_step import OneStepConfig, OneStepLearner

    other = genpolicy.load_game("connect:rows=4,cols=4,k=3")
    network = NetworkConfig(num_layers=1, width=16, num_heads=2)
    OneStepLearner(other, OneStepConfig(network=network)).policy().save_pretrained(tmp_path / "other")
    message = fails(capsys, "evaluate", "accuracy", "--policy", str(tmp_path / "other"), "--data", str(data))
    assert "this policy plays 'connect:rows=4" in message


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: 41 TB"),
        RuntimeError("could not create a primitive"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_memory_is_said(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["policies"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("genpolicy: error: too little memory (")
    assert said.count("\n") == 1


def test_an_error_that_python_lost_is_too_little_memory_under_a_limit_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")

    def fail(arguments: list[str]) -> int:
        raise SystemError("error return without exception set")

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    assert cli.main(["policies"]) == 2
    assert "too little memory (error return" in capsys.readouterr().err
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with pytest.raises(SystemError):
        cli.main(["policies"])

"""What an oracle's spelling stands for, an installed oracle or an engine's program, and what help says of kills."""

import pytest

import genpolicy
from genpolicy import cli
from genpolicy.data.oracle import make_oracle
from genpolicy.errors import RegistryError
from genpolicy_engines import pool as engine_pool

GAME = genpolicy.load_game("chess")


def test_an_engine_is_found_by_its_name(fake_engine, monkeypatch) -> None:
    program = fake_engine()
    program = program.rename(program.with_name("some-fork-12"))
    monkeypatch.setenv("PATH", str(program.parent))
    with make_oracle("some-fork-12?nodes=50", GAME) as oracle:
        (line,) = oracle.analyse([GAME.parse()], 1)
        assert line.error is None
        assert oracle.describe()["name"] == "Fake 1.0"
        assert oracle.describe()["limits"] == {"nodes": 50}


def test_neither_an_oracle_nor_an_engine_names_both_ways_out() -> None:
    with pytest.raises(RegistryError) as caught:
        make_oracle("no-such-fork?nodes=50", GAME)
    assert "no entry 'no-such-fork'" in str(caught.value)
    assert "install it, or give its path: '/path/to/no-such-fork?nodes=50'" in str(caught.value)
    with pytest.raises(RegistryError, match=r"Did you mean: 'stockfish'.*'/path/to/stokfish\?nodes=2000'"):
        make_oracle("stokfish", GAME)


def test_a_game_that_no_engine_plays_is_offered_none() -> None:
    with pytest.raises(RegistryError, match=r"Did you mean: 'solver'\?") as caught:
        make_oracle("sollver", genpolicy.load_game("connect:rows=3,cols=3,k=3"))
    assert "/path/to" not in str(caught.value)


def test_the_command_says_so_without_a_traceback(tmp_path, capsys) -> None:
    words = ["--game", "chess", "--oracle", "no-such-fork?nodes=50", "--games", "1", "--out", str(tmp_path / "d")]
    assert cli.main(["data", "selfplay", *words]) == 2
    error = capsys.readouterr().err
    assert "/path/to/no-such-fork?nodes=50" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("verb", ["label", "selfplay"])
def test_the_help_says_what_a_kill_costs(verb, capsys) -> None:
    assert cli.main(["data", verb, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"at most {engine_pool.AHEAD} per engine process" in said
    assert "only positions whose search had not ended" in said
    assert "from an empty hash table" in said
    assert "A power cut may cost" in said

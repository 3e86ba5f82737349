"""Configurations: defaults < files < key=value, and every mistake named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from genpolicy import load_game
from genpolicy.config import Settings, compose, read_yaml, structured, to_dict, to_yaml
from genpolicy.errors import ConfigError
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner


@dataclass
class Optimiser:
    lr: float = 3e-4
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    warmup_updates: int = 100

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr must be above 0, got {self.lr}")


@dataclass
class Run:
    game: str = "chess"
    seed: int = 0
    device: str | None = None
    optim: Optimiser = field(default_factory=Optimiser)
    learner: dict[str, Any] = field(default_factory=dict)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_defaults_then_files_then_overrides(tmp_path: Path) -> None:
    first = write(tmp_path, "a.yaml", "seed: 1\ngame: shogi\noptim: {lr: 0.1, warmup_updates: 5}\n")
    second = write(tmp_path, "b.yaml", "optim: {lr: 0.2}\n")
    config = compose(Run, [first, second], ["seed=7", "learner.kind=diffusion", "learner.net.width=64"])
    assert config == Run("shogi", 7, None, Optimiser(0.2, [0.9, 0.999], 5), {"kind": "diffusion", "net": {"width": 64}})
    assert compose(Run) == Run()


def test_bases_are_read_first_and_from_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "root.yaml", "seed: 1\ngame: shogi\noptim: {lr: 0.5}\n")
    write(tmp_path, "other.yaml", "game: go\n")
    leaf = write(tmp_path / "sub", "leaf.yaml", "base: [../root.yaml, ../other.yaml]\nseed: 3\n")
    config = compose(Run, [leaf])
    assert (config.seed, config.game, config.optim.lr) == (3, "go", 0.5)
    single = write(tmp_path / "sub", "single.yaml", "base: leaf.yaml\n")
    assert compose(Run, [single]) == config


def test_a_base_that_leads_back_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "base: b.yaml\n")
    write(tmp_path, "b.yaml", "base: a.yaml\n")
    with pytest.raises(ConfigError, match="leads back to itself"):
        compose(Run, [tmp_path / "a.yaml"])


def test_misspelt_key_is_named_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"'optim\.lrr' does not exist.*Did you mean: 'lr'.*Keys here: optim\.betas"):
        compose(Run, overrides=["optim.lrr=1e-3"])
    with pytest.raises(ConfigError, match=r"'sead' does not exist.*Did you mean: 'seed'"):
        compose(Run, overrides=["sead=1"])


def test_misspelt_key_of_a_file_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "run.yaml", "optim: {warmup_update: 3}\n")
    with pytest.raises(ConfigError, match=r"run\.yaml.*'optim\.warmup_update'.*Did you mean: 'warmup_updates'"):
        compose(Run, [file])


def test_a_free_section_is_checked_by_its_owner() -> None:
    with pytest.raises(ConfigError, match=r"key 'learner\.lrr' does not exist.*Did you mean: 'lr'"):
        structured(Optimiser, {"lrr": 1.0}, prefix="learner")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("seed=many", r"'seed'.*many"),
        ("optim.lr=fast", r"'optim\.lr'.*fast"),
        ("optim.betas=[a]", r"optim\.betas"),
        ("optim.betas=0.9", r"key 'optim\.betas' must be a list, e\.g\. optim\.betas=\[0\.9\]"),
        ("optim.betas={a: 1}", r"key 'optim\.betas' must be a list, got {'a': 1}"),
        ("optim=3", r"'optim' is a section of keys, got 3"),
        ("learner=3", r"'learner' is a section of keys, got 3"),
        ("optim.betas=[0.9,{a: 1}]", r"'optim.betas' is a list of plain values, got {'a': 1} in it"),
        ("game=", r"'game': it has no value"),
        ("optim.lr=-1", "lr must be above 0, got -1"),
        ("seed", "'seed' is not key=value"),
        ("=3", "'=3' is not key=value"),
    ],
)
def test_wrong_values_are_errors_that_name_the_key(override: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compose(Run, overrides=[override])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[0.9]", r"'optim.betas' holds 2 values, got \[0.9\]"),
        ("[0.9,0.9,0.9]", r"'optim.betas' holds 2 values"),
        ("[0.9,x]", r"'optim.betas': a value in it could not be converted to Float"),
        ("0.9", r"e\.g\. optim\.betas=\[0\.9,0\.9\]"),
    ],
)
def test_a_list_of_fixed_length_says_how_many_values_it_holds(value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compose(RunConfig, overrides=[f"optim.betas={value}"])


def test_an_argument_of_another_shape_than_the_file_names_the_key(tmp_path: Path) -> None:
    file = write(tmp_path, "run.yaml", "optim: {lr: 0.1, betas: [0.9, 0.99]}\n")
    for override, reason in (
        (
            "optim=[1]",
            r"argument 'optim=\[1\]': key 'optim' is a section of keys, got \[1\]; write optim",
        ),
        ("optim.betas={a: 1}", r"argument .*: key 'optim\.betas' must be a list, got {'a': 1}"),
    ):
        with pytest.raises(ConfigError, match=reason):
            compose(Run, [file], [override])


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: no such file"):
        compose(Run, [tmp_path / "missing.yaml"])
    with pytest.raises(ConfigError, match=r"list\.yaml: expected keys and values"):
        compose(Run, [write(tmp_path, "list.yaml", "- 1\n")])
    with pytest.raises(ConfigError, match=r"broken\.yaml: not readable as YAML"):
        read_yaml(write(tmp_path, "broken.yaml", "a: [1\nb: }\n"))
    with pytest.raises(ConfigError, match=r"dangling\.yaml"):
        compose(Run, [write(tmp_path, "dangling.yaml", "seed: ${nowhere}\n")])


def test_written_out_and_read_again(tmp_path: Path) -> None:
    config = compose(Run, overrides=["seed=4", "optim.lr=0.25", "learner.kind=one_step"])
    assert compose(Run, [write(tmp_path, "out.yaml", to_yaml(config))]) == config
    assert structured(Run, to_dict(config)) == config


def test_a_key_of_another_section_is_found_there() -> None:
    """Whole paths, as what was typed stands in the wrong section."""
    for override, meant in (("lr=1", "optim.lr"), ("optim.seed=1", "seed")):
        with pytest.raises(ConfigError) as caught:
            compose(Run, overrides=[override])
        assert f"Did you mean: {meant!r}? Keys here: " in str(caught.value)
    with pytest.raises(ConfigError, match=r"'warmup_update' does not exist. Did you mean: 'optim\.warmup_updates'"):
        compose(Run, overrides=["warmup_update=2"])
    with pytest.raises(ConfigError, match=r"'width' does not exist. Did you mean: 'learner\.net\.width'"):
        Settings(overrides=["width=2"]).fill(Run, elsewhere=lambda: ["learner.net.width"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\noptim:\n  lrr: 0.1\n", r"run\.yaml:3: key 'optim\.lrr' does not exist"),
        ("seed: 1\noptim:\n  # a comment\n  lr: fast\n", r"run\.yaml:4: key 'optim\.lr': .*fast"),
        ("seed: 1\n\noptim: 3\n", r"run\.yaml:3: key 'optim' is a section of keys, got 3"),
        ("game: go\noptim: {warmup_updates: 1,\n  lr: -1}\n", r"run\.yaml:3: lr must be above 0, got -1"),
        ("seed: 1\ngame: ${nowhere}\n", r"run\.yaml:2: key 'game': .*nowhere"),
        ("seed: 1\ngame: go\nseed: 2\n", r"run\.yaml:3: key 'seed' stands there twice, in lines 1 and 3"),
        ("optim:\n  lr: 1\n  betas: []\n  lr: 2\n", r"run\.yaml:4: key 'optim\.lr' .*twice, in lines 2 and 4"),
        ("seed: 1\noptim: [1\n", r"run\.yaml: not readable as YAML: line 3: "),
        ("seed: 1\nbase: 3\n", r"run\.yaml:2: base is a path or a list of paths, got 3"),
        ("seed: 1\nbase: [gone.yaml]\n", r"run\.yaml:2: base 'gone\.yaml': .*gone\.yaml: no such file"),
    ],
)
def test_the_line_of_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(Run, [write(tmp_path, "run.yaml", text)], ["device=cpu"])


def test_the_last_place_is_blamed(tmp_path: Path) -> None:
    """An argument over a file, a file over its base; what only the base says is the base's."""
    write(tmp_path, "root.yaml", "game: go\noptim:\n  lr: slow\n  warmup_updates: x\n")
    leaf = write(tmp_path, "leaf.yaml", "base: root.yaml\noptim: {lr: fast}\n")
    good = ["optim.warmup_updates=1"]
    with pytest.raises(ConfigError, match=r"^\S*leaf\.yaml:2: key 'optim\.lr': .*'fast'"):
        compose(Run, [leaf], good)
    with pytest.raises(ConfigError, match=r"^argument 'optim\.lr=faster': key 'optim\.lr': .*'faster'"):
        compose(Run, [leaf], [*good, "optim.lr=faster"])
    with pytest.raises(ConfigError, match=r"^\S*root\.yaml:4: key 'optim\.warmup_updates'"):
        compose(Run, [leaf], ["optim.lr=1"])
    with pytest.raises(ConfigError, match=r"^argument 'optim=\{lr: -1\}': lr must be above 0"):
        compose(Run, [leaf], [*good, "optim={lr: -1}"])


def test_a_tilde_removes_what_files_say(tmp_path: Path) -> None:
    file = write(tmp_path, "run.yaml", "game: go\noptim: {lr: 0.5, warmup_updates: 3}\n")
    left = compose(Run, [file], ["~optim", "optim.lr=0.25"]).optim
    assert (left.lr, left.warmup_updates) == (0.25, Optimiser().warmup_updates)
    assert compose(Run, [file], ["~optim.lr"]).optim == Optimiser(warmup_updates=3)
    for key in ("optim.momentum", "game.name", "", "optim.lr.x"):
        with pytest.raises(ConfigError, match=rf"argument '~{key}': nothing sets the key '{key}'"):
            compose(Run, [file], [f"~{key}"])


def test_a_key_of_the_kind_that_an_argument_replaced_has_a_way_out() -> None:
    def made(*arguments: str) -> Any:
        settings = Settings(["connect/s-asa-3x3"], arguments)
        with settings.locating():
            config = settings.fill(RunConfig)
            return make_learner(load_game("connect:rows=3,cols=3,k=3"), config.learner)

    replaced = r"'learner\.process\.schedule' does not exist.* argument 'learner\.process\.kind=flow' replaces:"
    with pytest.raises(ConfigError, match=replaced + r" '~learner\.process' before it"):
        made("learner.process.kind=flow")
    assert made("~learner.process", "learner.process.kind=flow").config.process["kind"] == "flow"


def test_repeated_arguments_are_told_and_the_last_counts() -> None:
    settings = Settings(overrides=["seed=1", "game=go", "seed=2"])
    assert settings.repeated == ["seed=1"]
    assert settings.fill(Run).seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a..b=3", "'a..b' is not a key"),
        ("optim.betas[0]=3", "is not a key"),
        ("seed=[1", "not readable as YAML"),
        ("optim={lr: 1, lr: 2}", "duplicate key"),
        ("configs/x.yaml", "--config configs/x.yaml"),
    ],
)
def test_malformed_arguments(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(Run, overrides=[override])
    assert message in str(caught.value)
    assert override in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml: not readable as YAML: it is not text in UTF-8"):
        read_yaml(tmp_path / "binary.yaml")
    with pytest.raises(ConfigError, match=r"number\.yaml: expected keys and values"):
        read_yaml(write(tmp_path, "number.yaml", "3\n"))


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        # The parser in C takes these two and the one in Python does not.
        ("optim:\n  lr: \t\n", [], r"file\.yaml:2: key 'optim\.lr': it has no value"),
        ("optim: [0???.9]\n", [], r"file\.yaml:1: key 'optim' is a section of keys"),
        (
            "optim:\n  a b: 1\n  a b: 2\n",
            [],
            r"file\.yaml:3: key 'optim\.a b' stands there twice, in lines 2 and 3",
        ),
        ("optim:\n  a.b: 1\n  a.b: 2\n", [], r"file\.yaml:3: key 'optim\.a\.b' stands there twice"),
        ("optim: {lr: 1}\n", ["optim=[1,2]"], r"argument 'optim=\[1,2\]': "),
        ("learner: {a: 1}\n", ["learner=[1,2]"], r"argument 'learner=\[1,2\]': "),
        ("optim: {lr: 1}\n", ["optim=-"], "argument 'optim=-': "),
        ("", ["optim.lr=1" + 400 * "0"], r"argument 'optim\.lr=10.*key 'optim\.lr': .*out of range"),
        ("", ["learner={a: " + 3000 * "[" + 3000 * "]" + "}"], "argument 'learner="),
        ("learner: {a: " + 3000 * "[" + 3000 * "]" + "}\n", [], r"file\.yaml: not readable as YAML"),
    ],
)
def test_odd_yaml_and_odd_numbers_are_named(tmp_path: Path, text: str, overrides: list[str], message: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        compose(Run, [file] if text else [], overrides)


def test_data_of_strangers_may_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENPOLICY_TEST_SECRET", "do not tell")
    for text in ("${oc.env:GENPOLICY_TEST_SECRET}", "x ${seed}", ["${oc.env:HOME}"]):
        with pytest.raises(ConfigError, match=r"f: key 'learner\.a': .*refers to another value") as caught:
            structured(Run, {"learner": {"a": text}}, where="f")
        assert "do not tell" not in str(caught.value)


def test_aliases_that_expand_without_end_are_refused(tmp_path: Path) -> None:
    levels = [f"{b}: &{b} [{', '.join(9 * ['*' + a])}]" for a, b in zip("abcdefghi", "bcdefghij", strict=True)]
    file = write(tmp_path, "bomb.yaml", "\n".join(["a: &a [x, x, x]", *levels]) + "\n")
    with pytest.raises(ConfigError, match=r"bomb\.yaml: not readable as YAML"):
        read_yaml(file)


@pytest.mark.parametrize("text", ["2024_07", "007", "1:30"])
def test_an_argument_s_text_is_what_was_written(text: str) -> None:
    """YAML reads these as numbers, whose text is another one."""
    assert Settings([], [f"out={text}"]).data == {"out": text}


@pytest.mark.parametrize("text", ["1e3", "yes", "0x1f", ".50", "2024_07", "007", "1:30", "12"])
def test_a_text_is_what_was_written_where_yaml_reads_another_value(tmp_path: Path, text: str) -> None:
    base = write(tmp_path, "base.yaml", f"out: first\ninit_from: {text}\ndata: {{train: {text}}}\n")
    file = write(tmp_path, "file.yaml", f"base: {base}\nout: {text}\n")
    made = compose(RunConfig, [file], [f"game={text}", f"data.validation={text}"])
    assert [made.out, made.init_from, made.game, made.data.train, made.data.validation] == 5 * [text]
    assert compose(RunConfig, [file], [f"data={{validation: {text}}}"]).data.validation == text
    assert compose(RunConfig, [file], ["out='quoted'"]).out == "quoted"


def test_an_argument_s_number_may_be_written_with_underscores() -> None:
    assert compose(RunConfig, [], ["trainer.max_records=1_000_000"]).trainer.max_records == 1_000_000


@pytest.mark.parametrize("value", ["runs/games #2", "[runs/a, runs/b] # both", "#2", "x\t# y"])
def test_an_argument_of_which_yaml_would_leave_out_a_part_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"argument 'data\.folder=.*#.*: YAML leaves out '#.*'; quote the value, "):
        Settings([], [f"data.folder={value}"])


@pytest.mark.parametrize("value", ["'runs/games #2'", '"runs/games #2"', "runs/games#2"])
def test_a_hash_that_is_quoted_or_within_a_word_is_text(value: str) -> None:
    assert Settings([], [f"data.folder={value}"]).data == {"data": {"folder": value.strip("'\"")}}

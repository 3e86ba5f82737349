"""Options: what they accept, who declares them, and what is known of a policy before it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from genpolicy import load_policy, registry
from genpolicy.control import FREE, Control
from genpolicy.errors import CheckpointError, RegistryError
from genpolicy.options import Declaration, Option, PolicySpec, options_of, read_options, with_defaults
from genpolicy.policies.base import Decision, Policy, policy_spec

CONNECT = "connect:rows=3,cols=3,k=3,gravity=false"


@pytest.mark.parametrize(
    ("option", "values"),
    [
        (Option("steps", int, low=1, high=20), [(3, 3), ("3", 3), (3.0, 3), (20, 20)]),
        (Option("noise", float, low=0), [(1, 1.0), ("0.5", 0.5), (0, 0.0)]),
        (Option("mask", bool), [(True, True), ("off", False), (1, True), ("No", False)]),
        (Option("name", str, choices=("a", "b")), [("a", "a")]),
        (Option("name", str), [("any text", "any text"), (5, "5")]),
    ],
)
def test_option_reads_texts_and_objects(option: Option, values: list[tuple[Any, Any]]) -> None:
    for value, expected in values:
        read = option.read(value)
        assert read == expected
        assert type(read) is type(expected)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (Option("steps", int, low=1, high=20), 0, r"steps must be at least 1 and at most 20, got 0"),
        (Option("steps", int, low=1), 0, r"steps must be at least 1, got 0"),
        (Option("steps", int, high=5), 6, r"steps must be at most 5, got 6"),
        (Option("seed", int, high=2**31 - 1), 2**31, r"seed must be at most 2147483647, got 2147483648"),
        (Option("steps", int), 2.5, r"steps is a whole number, got 2.5"),
        (Option("steps", int), True, r"steps is a whole number, got True"),
        (Option("steps", int), "many", r"steps is a whole number, got 'many'"),
        (Option("noise", float), "nan", r"noise is a number, got nan"),
        (Option("noise", float), 10**400, r"noise is a number, got 1000"),
        (Option("mask", bool), "maybe", r"mask must be true or false .*got 'maybe'"),
        (Option("rate", str, choices=("linear", "cosine")), "liner", r"one of linear, cosine; got 'liner'.*'linear'"),
    ],
)
def test_option_refuses_what_it_does_not_accept(option: Option, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        option.read(value)


@pytest.mark.parametrize(
    "declared",
    [
        {"type": list},
        {"type": int, "choices": ("a",)},
        {"type": int, "low": 2, "high": 1},
        {"type": int, "default": 0, "low": 1},
        {"type": str, "default": "c", "choices": ("a", "b")},
    ],
)
def test_declaration_that_contradicts_itself_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rate"):
        Option("rate", **declared)


def test_undeclared_option_is_named_with_the_near_one() -> None:
    options = [Option("num_steps", int), Option("seed", int)]
    with pytest.raises(ValueError, match=r"'x' takes no option 'num_step'.*num_steps.*It takes: num_steps, seed"):
        read_options("policy 'x'", {"num_step": 1}, options)
    assert read_options("x", {"num_steps": "4", "seed": None}, options) == {"num_steps": 4, "seed": None}
    assert read_options("x", {"seed": "4", "Skill Level": "5"}, options, others=True) == {"seed": 4, "Skill Level": "5"}


def test_defaults_of_a_folder_are_taken_only_where_they_are_accepted() -> None:
    options = (Option("steps", int, 20, 1, 40), Option("noise", float))
    steps, noise = with_defaults(options, {"steps": 10, "noise": None, "other": 1})
    assert (steps.default, noise.default) == (10, None)
    steps, _ = with_defaults(options, {"steps": 99})
    assert steps.default == 20


@pytest.mark.parametrize("kind", sorted(registry.available("policies")))
def test_class_and_declaration_say_the_same(kind: str) -> None:
    policy_class = registry.load("policies", kind)
    options = options_of("policies", kind)
    assert options == policy_class.options()
    assert all(option.help or option.hidden for option in options), "a page shows a line of help"
    point = registry.available("options").get(f"policies.{kind}")
    if point is not None:
        declared = registry.load_point("options", point)
        assert isinstance(declared, Declaration)
        assert declared.is_prior == policy_class.is_prior


def test_options_of_shipped_policies_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from genpolicy import registry\n"
        "from genpolicy.options import options_of\n"
        "from genpolicy.policies.base import policy_spec\n"
        "kinds = [kind for kind in registry.available('policies') if kind != 'image']\n"
        "for kind in kinds: options_of('policies', kind, policy_spec(kind))\n"
        "assert len(kinds) > 10 and 'torch' not in sys.modules, kinds\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def write_folder(path: Path, learner: str, kind: str = "diffusion") -> Path:
    path.mkdir()
    (path / "config.yaml").write_text(f"policy: {kind}\nformat: 1\ngame: {CONNECT}\nlearner: {{{learner}}}\n")
    return path


def by_name(spec: PolicySpec) -> dict[str, Option]:
    return {option.name: option for option in options_of("policies", spec.kind, spec)}


def test_a_folder_narrows_ranges_and_sets_defaults(tmp_path: Path) -> None:
    learner = (
        "horizon: 6, process: {kind: multinomial, num_timesteps: 12}, "
        "sampler: {name: ancestral, num_steps: 5, options: {noise: 0.5}}"
    )
    spec = policy_spec(f"{write_folder(tmp_path / 'policy', learner)}?temperature=2")
    assert (spec.kind, spec.game, spec.label) == ("diffusion", CONNECT, tmp_path.name)
    options = by_name(spec)
    assert (options["num_steps"].high, options["num_steps"].default) == (12, 5)
    assert (options["horizon"].high, options["horizon"].default) == (6, 6)
    assert (options["sampler"].default, options["temperature"].default, options["noise"].default) == (
        "ancestral",
        2,
        0.5,
    )
    assert "a0_last" not in options["sampler"].choices, "it keeps decisions, which this noise hides"
    assert "a0_last" in by_name(PolicySpec("diffusion"))["sampler"].choices


def test_a_search_forwards_options_of_the_folder_inside(tmp_path: Path) -> None:
    inner = write_folder(tmp_path / "inner", "process: {kind: absorbing, num_timesteps: 12}")
    spec = policy_spec(f"mcts:{inner}?simulations=50")
    assert spec.game == CONNECT
    options = by_name(spec)
    assert (options["simulations"].default, options["num_steps"].high) == (50, 12)
    assert {"sampler", "num_steps"} <= options.keys()
    assert "horizon" not in options
    assert "sampler" not in by_name(policy_spec("mcts:uniform"))


def test_specs_of_what_is_no_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no such folder"):
        policy_spec(tmp_path / "missing")
    with pytest.raises(CheckpointError, match=r"holds no config.yaml"):
        policy_spec(tmp_path)
    with pytest.raises(RegistryError, match=r"no policy 'rando'\. Did you mean: 'random'\?.* by one of: action_value"):
        policy_spec("rando")
    with pytest.raises(RegistryError, match=r"no policy 'ches'\. Did you mean: 'chess'\?.* a shipped policy \(chess, "):
        policy_spec("ches")
    with pytest.raises(RegistryError, match="the policy is empty"):
        policy_spec("?seed=3")


class Toy(Policy):
    """Plays the first legal move."""

    kind = "toy"

    def __init__(self, game: Any, level: int) -> None:
        self.game, self.level = game, level
        self.seeded: int | None = None

    def decide(self, states: Any, *, control: Control = FREE) -> list[Decision]:
        return [Decision(int(self.game.legal(state)[0])) for state in states]

    def seed(self, seed: int) -> None:
        self.seeded = seed

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        return (Option("level", int, 1, low=0),)

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> Toy:
        return cls(registry.load_game(options["game"]), options.get("level", 1))


@pytest.fixture(name="toy")
def registered_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("policies", "toy")(Toy)


@pytest.mark.usefixtures("toy")
def test_a_registered_policy_gets_its_options_read() -> None:
    made = load_policy("toy?level=3", game=CONNECT, seed=5)
    assert isinstance(made, Toy)
    assert (made.level, made.seeded) == (3, 5)
    with pytest.raises(ValueError, match="policy 'toy': option level must be at least 0, got -1"):
        load_policy("toy?level=-1", game=CONNECT)
    with pytest.raises(ValueError, match="policy 'toy' takes no option 'lvl'"):
        load_policy("toy", game=CONNECT, lvl=1)


@pytest.mark.usefixtures("toy")
def test_a_wrong_entry_of_options_is_blamed_and_not_its_policy() -> None:
    registry.register("options", "policies.toy")((Option("level", int), Option("level", int)))
    with pytest.raises(RegistryError, match=r"'policies.toy' \(registered in this process\) declares .* twice"):
        options_of("policies", "toy")


@pytest.mark.usefixtures("toy")
def test_wrong_declarations_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    option = Option("level", int)
    monkeypatch.setattr(Toy, "options", classmethod(lambda cls, spec=None: (option, option)))
    with pytest.raises(RegistryError, match=r"policy 'toy' .* declares the option 'level' twice"):
        options_of("policies", "toy")
    monkeypatch.setattr(Toy, "options", classmethod(lambda cls, spec=None: ("level",)))
    with pytest.raises(RegistryError, match=r"policy 'toy' .* made a str, not a genpolicy.options.Option"):
        options_of("policies", "toy")
    monkeypatch.setattr(Toy, "from_spec", classmethod(lambda cls, argument, options: "no policy"))
    monkeypatch.setattr(Toy, "options", classmethod(lambda cls, spec=None: ()))
    with pytest.raises(RegistryError, match=r"policy 'toy' .* made a str, not a Policy"):
        load_policy("toy", game=CONNECT)


def test_control_restricts_to_legal_moves_in_their_order() -> None:
    assert FREE.allowed("s", [3, 1, 2]) == [3, 1, 2]
    assert Control(restrict=lambda state: None).allowed("s", [3, 1]) == [3, 1]
    assert Control(restrict=lambda state: [2, 3, 9]).allowed("s", [3, 1, 2]) == [3, 2]
    with pytest.raises(ValueError, match=r"no legal move is left: \[9\] of \[3, 1\]"):
        Control(restrict=lambda state: [9]).allowed("s", [3, 1])
    assert FREE.check() is None  # type: ignore[func-returns-value]

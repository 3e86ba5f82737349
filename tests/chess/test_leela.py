"""leela:FILE.onnx: planes and moves against hand tables, outputs against a NumPy copy of a network made here."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from numpy.typing import NDArray

import genpolicy
from genpolicy.errors import CheckpointError
from genpolicy.testing import check_policy
from genpolicy_chess import ChessGame
from genpolicy_chess.leela_planes import leela_ids, planes
from genpolicy_chess.state import ChessState, mirrored

onnx = pytest.importorskip("onnx", reason="the extra [test] has onnx")
pytest.importorskip("onnxruntime", reason="the extra [lc0] has onnxruntime")

GAME = ChessGame()
HIDDEN = 16


def state_of(fen: str | None, *moves: str) -> ChessState:
    state = GAME.parse(fen)
    for move in moves:
        state = GAME.play(state, GAME.move_from_text(state, move))
    return state


def squares(plane: NDArray[np.float32]) -> str:
    """The squares of a plane, as its mover names them."""
    assert set(np.unique(plane)) <= {0.0, 1.0}
    return " ".join(chess.square_name(int(i)) for i in np.flatnonzero(plane))


def ones(image: NDArray[np.float32]) -> set[int]:
    """The planes that are one everywhere."""
    return {i for i in range(112) if (image[i] == 1).all()}


START = "a2 b2 c2 d2 e2 f2 g2 h2|b1 g1|c1 f1|a1 h1|d1|e1|a7 b7 c7 d7 e7 f7 g7 h7|b8 g8|c8 f8|a8 h8|d8|e8"


def test_planes_of_the_initial_position() -> None:
    image = planes([GAME.parse()])[0]
    assert image.shape == (112, 8, 8)
    assert [squares(plane) for plane in image[:12]] == START.split("|")
    assert ones(image) == {104, 105, 106, 107, 111}
    assert not image[12:104].any()  # no past before the initial position
    assert not image[108:111].any()


def test_planes_of_a_repetition_after_castling_rights_were_lost() -> None:
    """Both rooks leave home and return, twice: the second time the position has stood there, the first time not."""
    shuffle = ("a1b1", "a8b8", "b1a1", "b8a8")
    state = state_of("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", *shuffle, *shuffle)
    image = planes([state])[0]
    home, away = ["", "", "", "a1 h1", "", "e1"], ["", "", "", "b1 h1", "", "e1"]
    theirs, theirs_away = ["", "", "", "a8 h8", "", "e8"], ["", "", "", "b8 h8", "", "e8"]
    past = [home + theirs, home + theirs_away, away + theirs_away, away + theirs] * 2
    for i, pieces in enumerate(past):
        assert [squares(plane) for plane in image[13 * i : 13 * i + 12]] == pieces, i
    # Latest first: plies 8 to 1. Plies 8 to 5 have stood there before (ply 8 as ply 4, ply 5 as ply 1).
    before = state_of("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", *shuffle)
    assert before.num_occurrences == 1  # the rights differ from the first position's
    assert [i for i in range(8) if image[13 * i + 12].all()] == [0, 1, 2]
    assert not image[13 * 3 + 12].any()  # ply 5 has lost rights that ply 1 still had
    assert ones(image) - {12, 25, 38} == {105, 107, 111}  # both may castle short alone
    assert (image[109] == 8).all()


def test_a_position_without_a_past_is_its_own_and_the_passing_pawn_steps_back() -> None:
    state = state_of("rnbqkbnr/ppp1pppp/8/8/3pP3/5N2/PPPP1PPP/RNBQKB1R b KQkq e3 0 3")
    image = planes([state])[0]
    # Black to move: ranks are turned over, so White's e4 is seen on e5 and came from e7.
    assert squares(image[6]) == "e5 a7 b7 c7 d7 f7 g7 h7"
    for i in range(1, 8):
        assert squares(image[13 * i + 6]) == "a7 b7 c7 d7 e7 f7 g7 h7"
        others = [k for k in range(13) if k != 6]
        assert (image[13 * i : 13 * i + 13][others] == image[:13][others]).all()
    assert squares(image[0]) == "a2 b2 c2 e2 f2 g2 h2 d5"
    assert ones(image) == {104, 105, 106, 107, 108, 111}


@pytest.mark.parametrize(
    ("fen", "moves"),
    [
        (None, ("e2e4", "c7c5", "g1f3")),
        ("r3k2r/8/8/8/8/8/8/R3K3 w Qkq - 3 9", ("e1c1", "e8g8")),
        ("4k3/8/8/8/3Pp3/8/8/4K3 b - d3 0 1", ()),
    ],
)
def test_black_sees_the_turned_board(fen: str | None, moves: tuple[str, ...]) -> None:
    state = state_of(fen, *moves)
    one, other = planes([state])[0], planes([mirrored(state)])[0]
    black = 108
    assert (one[black] != other[black]).all()
    rest = [i for i in range(112) if i != black]
    if fen is not None:  # the turned initial position is not the initial position, so its past is filled
        assert (one[rest] == other[rest]).all()
    assert (one[:52] == other[:52]).all()


@pytest.mark.parametrize(
    ("fen", "move", "expected"),
    [
        (None, "e2e4", 322),  # these four as lc0 prints them with --verbose-move-stats
        (None, "d2d4", 293),
        (None, "c2c4", 264),
        (None, "g1f3", 159),
        ("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1", "e7e5", 322),  # Black's as White's
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1g1", 103),  # castling is e1h1 and e1a1
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1c1", 97),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "e8g8", 103),
        ("3k4/8/8/8/8/7K/8/4R3 w - - 0 1", "e1g1", 102),  # a rook's move is not castling
        ("7k/P7/8/8/8/8/8/K7 w - - 0 1", "a7a8q", 1792),
        ("7k/P7/8/8/8/8/8/K7 w - - 0 1", "a7a8r", 1793),
        ("7k/P7/8/8/8/8/8/K7 w - - 0 1", "a7a8b", 1794),
        ("k7/7P/8/8/8/8/8/K7 w - - 0 1", "h7h8b", 1857),
    ],
)
def test_moves_have_leelas_numbers(fen: str | None, move: str, expected: int) -> None:
    state = state_of(fen)
    assert leela_ids(state, [GAME.move_from_text(state, move)]).tolist() == [expected]


def test_a_promotion_to_a_knight_is_the_plain_move_and_no_two_moves_share_a_number() -> None:
    knight = state_of("7k/P7/8/8/8/8/8/K7 w - - 0 1")
    rook = state_of("7k/R7/8/8/8/8/8/K7 w - - 0 1")
    promoted = leela_ids(knight, [GAME.move_from_text(knight, "a7a8n")])
    assert promoted.tolist() == leela_ids(rook, [GAME.move_from_text(rook, "a7a8")]).tolist()
    for fen in (
        None,
        "r3k2r/pPppqpb1/1n2pnp1/3PN3/1p2P3/2N2Q1p/P1PBBP1P/R3K2R w KQkq - 0 1",
        "r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1",
    ):
        state = state_of(fen)
        legal = GAME.legal(state).tolist()
        ids = leela_ids(state, legal)
        assert len(set(ids.tolist())) == len(legal)
        assert ids.min() >= 0
        assert ids.max() < 1858


def write_network(path: Path, **changes: Any) -> dict[str, NDArray[np.float32]]:
    """A small network in the form of ``lc0 leela2onnx``; returns its weights.

    Args:
        path: The file.
        changes: ``input`` and ``policy``, other names; ``planes``, other than 112; ``outputs``, which of policy, wdl,
            value and mlh; ``batch``, a fixed one; ``opset``; ``moves``, not 1858; ``logits``, wdl without softmax.
    """
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(5)
    num_planes, num_moves = changes.get("planes", 112), changes.get("moves", 1858)
    sizes = {"in": (num_planes * 64, HIDDEN), "policy": (HIDDEN, num_moves), "wdl": (HIDDEN, 3)}
    sizes |= {"value": (HIDDEN, 1), "mlh": (HIDDEN, 1)}
    weights = {name: rng.normal(0, size[0] ** -0.5, size).astype(np.float32) for name, size in sizes.items()}
    source, outputs = changes.get("input", "/input/planes"), changes.get("outputs", ("policy", "wdl", "mlh"))
    nodes = [
        helper.make_node("Flatten", [source], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "in"], ["before"]),
        helper.make_node("Tanh", ["before"], ["hidden"]),
    ]
    names = {name: f"/output/{name}" for name in outputs}
    names["policy"] = changes.get("policy", names["policy"])
    after = {"wdl": "Identity" if changes.get("logits") else "Softmax", "value": "Tanh", "mlh": "Relu"}
    for name in outputs:
        nodes.append(helper.make_node("MatMul", ["hidden", name], [f"raw {name}"]))
        nodes.append(helper.make_node(after.get(name, "Identity"), [f"raw {name}"], [names[name]]))
    batch = changes.get("batch", "batch")
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, [batch, num_planes, 8, 8])],
        [helper.make_tensor_value_info(names[n], TensorProto.FLOAT, [batch, sizes[n][1]]) for n in outputs],
        [numpy_helper.from_array(weights[name], name) for name in ("in", *outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", changes.get("opset", 17))], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return weights


STATES = [
    GAME.parse(),
    state_of(None, "e2e4", "e7e5", "g1f3"),
    state_of("r3k2r/pPppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/P1PBBPPP/R3K2R w KQkq - 0 1"),
]


def test_outputs_are_those_of_a_numpy_copy(tmp_path: Path) -> None:
    weights = write_network(tmp_path / "net.onnx")
    policy = genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}", temperature=0.5)
    for state, decision in zip(STATES, policy.decide(STATES), strict=True):
        hidden = np.tanh(planes([state]).reshape(1, -1) @ weights["in"])[0]
        legal = GAME.legal(state).tolist()
        logits = (hidden @ weights["policy"])[leela_ids(state, legal)] / 0.5
        expected = np.exp(logits - logits.max())
        expected /= expected.sum()
        assert decision.policy is not None
        np.testing.assert_allclose([decision.policy[move] for move in legal], expected, rtol=1e-4)
        assert decision.move == legal[int(expected.argmax())]
        raw = np.exp(hidden @ weights["wdl"])
        wdl = raw / raw.sum()
        assert decision.text.startswith(f"{GAME.moves[decision.move]}, ")
        np.testing.assert_allclose(decision.wdl, wdl, rtol=1e-4)
        assert decision.value == pytest.approx(wdl[0] - wdl[2], abs=1e-5)
        assert decision.stats["plies_left"] == pytest.approx(max(0.0, float((hidden @ weights["mlh"])[0])), abs=1e-5)


@pytest.mark.parametrize("changes", [{}, {"batch": 2}, {"outputs": ("policy", "value")}])
def test_it_is_a_policy(changes: dict[str, Any], tmp_path: Path) -> None:
    weights = write_network(tmp_path / "net.onnx", **changes)
    policy = genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}", game="chess")
    mated = state_of(None, "f2f3", "e7e5", "g2g4", "d8h4")
    check_policy(policy, STATES, finished=[mated], max_plies=4)
    if "outputs" in changes:
        hidden = np.tanh(planes(STATES[:1]).reshape(1, -1) @ weights["in"])[0]
        value, decision = float(np.tanh(hidden @ weights["value"])[0]), policy.decide(STATES[:1])[0]
        assert decision.value == pytest.approx(value, abs=1e-5)
        assert decision.wdl == pytest.approx(((1 + value) / 2, 0, (1 - value) / 2), abs=1e-5)
    assert policy.label == "leela:net.onnx"
    changed: Any = policy.with_options(temperature=2)
    assert changed.temperature == 2


def test_a_search_runs_over_it(tmp_path: Path) -> None:
    write_network(tmp_path / "net.onnx")
    policy = genpolicy.load_policy(f"mcts:leela:{tmp_path / 'net.onnx'}?simulations=16", game="chess")
    mate_in_one = state_of("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
    assert GAME.moves[policy.decide([mate_in_one])[0].move] in {GAME.moves[m] for m in GAME.legal(mate_in_one)}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"input": "planes"}, r"inputs and outputs planes, /output/policy.*expected input /input/planes"),
        ({"policy": "moves"}, r"has inputs and outputs .* moves, .*as lc0 leela2onnx names them"),
        ({"outputs": ("policy", "mlh")}, r"expected input .* and /output/wdl or /output/value"),
        ({"planes": 5}, r"/input/planes is tensor\(float\) \['batch', 5, 8, 8\]; expected floats \[B, 112, 8, 8\]"),
        ({"moves": 4672}, r"/output/policy is \['batch', 4672\]; expected \[B, 1858\]"),
        ({"opset": 999}, r"onnxruntime .* cannot read it .*convert the network again"),
    ],
)
def test_other_networks_are_refused(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    write_network(tmp_path / "net.onnx", **changes)
    with pytest.raises(CheckpointError, match=match):
        genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}")


def test_outputs_that_are_no_probabilities_are_named(tmp_path: Path) -> None:
    write_network(tmp_path / "net.onnx", logits=True)
    policy = genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}")
    with pytest.raises(ValueError, match=r"/output/wdl answers \[.*expected probabilities"):
        policy.decide(STATES[:1])


@pytest.mark.parametrize(
    ("output", "number", "match"),
    [
        ("policy", float("nan"), "/output/policy answers numbers that are not finite"),
        ("policy", float("-inf"), "/output/policy answers numbers that are not finite"),
        ("value", float("nan"), "/output/value answers numbers that are not finite"),
        ("value", 30.0, "/output/value answers 30.0; expected a number from -1 to 1"),
        ("mlh", float("inf"), "/output/mlh answers numbers that are not finite"),
    ],
)
def test_outputs_that_no_network_means_are_named(output: str, number: float, match: str, tmp_path: Path) -> None:
    write_network(tmp_path / "net.onnx", outputs=("policy", "value", "mlh"))
    policy: Any = genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}")
    session = policy.network._session

    class Damaged:
        def run(self, names: list[str], inputs: dict[str, Any]) -> list[Any]:
            found = [each.copy() for each in session.run(names, inputs)]
            found[names.index(f"/output/{output}")][:] = number
            return found

    policy.decide(STATES[:1])
    policy.network._session = Damaged()
    with pytest.raises(ValueError, match=match):
        policy.decide(STATES[:1])


def test_files_that_are_no_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.onnx: no such file"):
        genpolicy.load_policy(f"leela:{tmp_path / 'none.onnx'}")
    (tmp_path / "net.pb.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(CheckpointError, match=r"lc0 leela2onnx --input=.*net\.pb\.gz"):
        genpolicy.load_policy(f"leela:{tmp_path / 'net.pb.gz'}")
    (tmp_path / "net.onnx").write_bytes(b"not a network")
    with pytest.raises(CheckpointError, match=r"onnxruntime .* cannot read it"):
        genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}")
    with pytest.raises(ValueError, match=r"needs a file: write leela:FILE\.onnx"):
        genpolicy.load_policy("leela")
    with pytest.raises(ValueError, match="plays chess, not connect"):
        genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}", game="connect")


def test_without_onnxruntime_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_network(tmp_path / "net.onnx")
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "onnxruntime":
            raise ModuleNotFoundError("No module named 'onnxruntime'", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs the module 'onnxruntime': pip install 'genpolicy\[lc0\]'"):
        genpolicy.load_policy(f"leela:{tmp_path / 'net.onnx'}")


def test_a_long_game_keeps_its_last_eight_positions() -> None:
    state = state_of(None, "e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "b5a4", "g8f6", "e1g1")
    image = planes([state])[0]
    # Black to move, eight positions back is after 1. e4: the knight is at home, White's pawn on e5 as Black sees it.
    assert squares(image[13 * 7 + 7]) == "b8 g8"
    assert "e5" in squares(image[13 * 7 + 6]).split()
    assert squares(image[6 + 3]) == "a8 f8"  # castled

"""What the web board's server answers: offers, positions, decisions and files, over real HTTP."""

from __future__ import annotations

import os
import random
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import pytest

from genpolicy import load_game, load_policy
from genpolicy.policies.base import policy_spec

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("uvicorn", reason="needs the extra [web]")

from genpolicy_play.web.catalog import make_catalog
from genpolicy_play.web.settings import Settings
from tests.play.engine_policies import save_diffusion
from tests.play.web_server import TIC_TAC_TOE, Client, serving

ENGINE_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"])  # where Debian puts engines
FOOLS_MATE = ["f2f3", "e7e5", "g2g4", "d8h4"]
SHUFFLE = ["g1f3", "g8f6", "f3g1", "f6g8"]
DECLARED = "+R+R+B+B4K/GGGGSS3/9/9/9/9/9/9/4k4 b 2P 1"  # ten pieces and 28 points in the camp, no check


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_diffusion(tmp_path_factory.mktemp("web") / "small", TIC_TAC_TOE)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    specs: list[str | Path] = [
        folder,
        "random?game=chess",
        "random?game=shogi",
        "mcts:heuristic?simulations=20&game=chess",
        "alphabeta?nodes=200&game=chess",
    ]
    with serving(specs, ["connect"]) as made:
        yield made


def test_offers_name_games_policies_and_ranges(client: Client) -> None:
    said = client.get("/api/offers").json
    assert {game["spec"]: game["title"] for game in said["games"]} == {
        "connect:rows=6,cols=7,k=4,gravity=true": "Connect Four",
        TIC_TAC_TOE: "Tic-tac-toe",
        "chess": "Chess",
        "shogi": "Shogi",
    }
    of_game = {game["name"]: game["file_suffixes"] for game in said["games"]}
    assert of_game["chess"] == [".pgn"]
    assert of_game["shogi"][:2] == [".kif", ".csa"]
    small = said["policies"][0]
    assert (small["label"], small["game"], small["dreams"]) == ("small", TIC_TAC_TOE, True)
    options = {option["name"]: option for option in small["options"]}
    # The policy was made with eight timesteps and a horizon of two plies.
    assert (options["num_steps"]["min"], options["num_steps"]["max"]) == (1, 8)
    assert (options["horizon"]["min"], options["horizon"]["max"], options["horizon"]["default"]) == (1, 2, 2)
    assert options["sampler"]["default"] in options["sampler"]["choices"]
    assert options["num_futures"]["samplers"] == ["a0_last"]
    assert [policy["label"] for policy in said["policies"] if policy["game"] == "shogi"] == ["random"]
    assert not any(policy["dreams"] for policy in said["policies"][1:])


def test_a_server_that_is_started_again_knows_its_policies_by_the_same_ids(client: Client) -> None:
    """A page that stays open goes on with the ids of the server before."""
    again = make_catalog(["greedy", "random", "greedy"], ["shogi", "chess"]).policies.values()
    before = {(offer.game.spec, offer.label): offer.id for offer in client.catalog.policies.values()}
    ids = {(offer.game.spec, offer.label): offer.id for offer in again}
    assert len(set(ids.values())) == len(ids) == 6
    for policy in (("chess", "random"), ("shogi", "random")):
        assert ids.pop(policy) == before.pop(policy)
    assert not set(ids.values()) & set(before.values())


def test_every_option_of_an_offer_is_taken_at_both_ends_and_refused_beyond(client: Client) -> None:
    for policy in client.get("/api/offers").json["policies"]:
        for option in policy["options"]:
            asked = {"game": policy["game"], "policy": policy["id"], "seed": 1}
            if option["kind"] == "choice":
                good, bad = option["choices"], ["no such choice", 3]
            elif option["kind"] == "bool":
                good, bad = [True, False], [1, "true"]
            else:
                low, high = option["min"], option["max"]
                # The upper ends of searches take seconds; that they are taken is seen by the reader of options alone.
                good, bad = [low, min(high, max(low, 24))], [low - 1, high + 1, "3", True]
            for value in good:
                options = {option["name"]: value}
                if option["samplers"]:
                    options["sampler"] = option["samplers"][0]
                if option["name"] == "num_futures":
                    options["temperature"] = 1.0
                reply = client.post("/api/decide", {**asked, "options": options})
                assert reply.status == 200, (options, reply.body)
                assert "decision" in reply.lines[-1], (options, reply.lines[-1])
            for value in bad:
                reply = client.post("/api/decide", {**asked, "options": {option["name"]: value}})
                assert reply.status == 400, (option["name"], value)
                assert option["name"] in reply.error


def test_an_option_that_is_set_back_to_its_default_leaves_the_policy_as_it_was() -> None:
    spec, policy = policy_spec("tic-tac-toe"), load_policy("tic-tac-toe")
    settings = Settings(spec, policy, "cpu")
    usual = {each.name: each.option.default for each in settings.all if each.option.default is not None}
    assert settings.policy(settings.read({**usual, "commit": False})) is policy
    assert settings.read({"num_steps": 2, "sampler": usual["sampler"]}) == {"num_steps": 2}


def test_options_that_do_not_go_together_are_refused_in_words(client: Client) -> None:
    reply = client.decide(TIC_TAC_TOE, "small", options={"num_futures": 4})
    assert reply.status == 400
    assert "a0_last" in reply.error
    reply = client.decide(TIC_TAC_TOE, "small", options={"simulation": 4})
    assert reply.status == 400
    assert "simulations" in reply.error


def test_position_after_moves_is_the_rules_librarys(client: Client) -> None:
    rng = random.Random(3)
    board = chess.Board()
    moves: list[str] = []
    labels: list[str] = []
    for _ in range(30):
        said = client.position("chess", moves)
        assert said["text"] == board.fen(en_passant="legal")
        assert {each["move"] for each in said["legal"]} == {move.uci() for move in board.legal_moves}
        assert {each["label"] for each in said["legal"]} == {board.san(move) for move in board.legal_moves}
        for each in said["legal"]:
            move = chess.Move.from_uci(each["move"])
            # Tokens of squares count from a8 along the ranks.
            assert (each["source"], each["target"]) == (move.from_square ^ 56, move.to_square ^ 56)
        assert (said["moves"], said["labels"]) == (moves, labels)
        king = board.king(board.turn) if board.is_check() else None
        assert said["check"] == (None if king is None else king ^ 56)
        if board.is_game_over():
            break
        move = rng.choice(list(board.legal_moves))
        moves.append(move.uci())
        labels.append(board.san(move))
        board.push(move)


@pytest.mark.parametrize(
    ("game", "start", "moves", "winner", "reason"),
    [
        ("chess", None, FOOLS_MATE, 1, "checkmate"),
        ("chess", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", [], None, "stalemate"),
        ("chess", None, SHUFFLE * 2, None, "threefold repetition"),
        ("chess", "7k/8/6K1/8/8/8/8/8 b - - 0 1", [], None, "insufficient material"),
        ("chess", "7k/8/6K1/8/8/8/8/7R b - - 99 90", ["h8g8"], None, "fifty moves without capture or pawn move"),
        ("shogi", None, ["2h3h", "8b7b", "3h2h", "7b8b"] * 3, None, "fourfold repetition"),
        ("shogi", DECLARED, [], 0, "declaration of the entered king"),
        ("shogi", "8k/8P/8K/9/9/9/9/9/9 b G 1", ["G*1b"], None, None),
        ("shogi", "8k/9/8P/9/9/9/9/9/4K4 b G 1", ["G*1b"], 0, "checkmate"),
        (TIC_TAC_TOE, None, ["a1", "b1", "a2", "b2", "a3"], 0, "3 in a row"),
        (TIC_TAC_TOE, None, ["a1", "b2", "c3", "a2", "c2", "c1", "a3", "b3", "b1"], None, "the board is full"),
    ],
)
def test_end_of_the_game_has_a_reason(
    client: Client, game: str, start: str | None, moves: list[str], winner: int | None, reason: str | None
) -> None:
    if reason is None:  # a pawn stands on the square of the drop
        reply = client.post("/api/position", {"game": game, "start": start, "moves": moves})
        assert reply.status == 400
        assert "G*1b" in reply.error
        return
    assert client.position(game, moves, start=start)["outcome"] == {"winner": winner, "reason": reason}
    if moves:
        assert client.position(game, moves[:-1], start=start)["outcome"] is None


def test_drops_come_from_the_hand_of_the_player_who_drops(client: Client) -> None:
    # Both sides hold one gold: tokens 82 to 88 are Black's hand (P L N S G B R), 89 to 95 White's.
    for side, slot in (("b", 86), ("w", 93)):
        said = client.position("shogi", start=f"4k4/9/9/9/9/9/9/9/4K4 {side} Gg 1")
        drops = [each for each in said["legal"] if each["move"].startswith("G*")]
        assert drops
        assert {each["source"] for each in drops} == {slot}
        after = client.position("shogi", [drops[0]["move"]], start=said["start"])
        assert after["last"] == {"source": slot, "target": drops[0]["target"]}


def test_stone_that_falls_has_the_square_where_it_rests(client: Client) -> None:
    game = "connect:rows=6,cols=7,k=4,gravity=true"
    said = client.position(game, ["d", "d"])
    targets = {each["move"]: each["target"] for each in said["legal"]}
    # Rows of seven from the top: d1 and d2 are taken.
    assert targets == {"a": 35, "b": 36, "c": 37, "d": 24, "e": 39, "f": 40, "g": 41}
    assert said["last"] == {"source": -1, "target": 31}


@pytest.mark.parametrize("game", ["chess", "shogi", TIC_TAC_TOE, "connect:rows=6,cols=7,k=4,gravity=true"])
def test_drawing_is_xml_with_a_place_for_every_square_and_nothing_active(client: Client, game: str) -> None:
    tokens = load_game(game).tokens
    squares = {str(i) for i in range(tokens.length) if tokens.rows[i] >= 0 or tokens.hands[i] >= 0}
    for flip in (False, True):
        root = ET.fromstring(client.position(game, flip=flip)["svg"])
        assert {each.get("data-place") for each in root.iter() if each.get("data-place")} == squares
        for each in root.iter():
            assert each.tag.rpartition("}")[2] not in ("script", "style", "foreignObject", "image", "a")
            for name, value in each.attrib.items():
                assert not name.startswith("on")
                assert name != "style"
                assert not name.endswith("href") or value.startswith("#")
    assert client.position(game, flip=True)["svg"] != client.position(game)["svg"]


def test_start_with_moves_comes_back_as_start_and_moves(client: Client) -> None:
    said = client.position("shogi", ["3c3d"], start="startpos moves 7g7f")
    assert said["moves"] == ["7g7f", "3c3d"]
    assert said["labels"] == ["▲７六歩(77)", "△３四歩(33)"]
    again = client.position("shogi", said["moves"], start=said["start"])
    assert (again["text"], again["moves"]) == (said["text"], said["moves"])


def test_typed_moves_are_read_as_people_write_them(client: Client) -> None:
    assert client.position("chess", ["e2e4"], typed="Nf6")["moves"] == ["e2e4", "g8f6"]
    assert client.position("shogi", typed="７六歩")["moves"] == ["7g7f"]
    reply = client.post("/api/position", {"game": "chess", "typed": "Nf6"})
    assert reply.status == 400
    assert "Nf6" in reply.error


def test_a_dream_comes_step_by_step_and_decides_as_the_policy_does(client: Client, folder: Path) -> None:
    moves = ["b2", "a1"]
    lines = client.decide(TIC_TAC_TOE, "small", moves, dream=True, seed=5, options={"num_steps": 4}).lines
    steps, decision = lines[:-1], lines[-1]["decision"]
    assert [(line["step"], line["of"]) for line in steps] == [(i, 4) for i in range(1, 5)]
    assert steps[-1]["time"] == 0
    assert [line["time"] for line in steps] == sorted((line["time"] for line in steps), reverse=True)
    assert len(steps[0]["boards"]) == 1  # two plies imagined: a position between two moves
    masked = [line["boards"][0]["masked"] for line in steps]
    assert masked == sorted(masked, reverse=True)
    assert masked[-1] == 0
    assert all(ET.fromstring(line["boards"][0]["svg"]) is not None for line in steps)
    for line in steps:
        assert sum(each["probability"] for each in line["policy"]) == pytest.approx(1, abs=1e-6)  # 7 moves, 8 are told
    # The same policy, asked without a server.
    policy = load_policy(str(folder), num_steps=4)
    game = policy.game
    state = game.parse()
    for move in moves:
        state = game.play(state, game.moves.index(move))
    policy.seed(5)
    expected = policy.decide([state])[0]
    assert decision["move"] == game.moves[expected.move]
    assert [each["move"] for each in decision["line"]] == [game.moves[m] if m >= 0 else None for m in expected.line]
    assert decision["calls"] == 4
    assert decision["seed"] == 5
    assert expected.policy is not None
    for each in decision["policy"]:
        assert each["probability"] == pytest.approx(expected.policy[game.moves.index(each["move"])], abs=1e-6)
    # Without the dream there is the decision alone, and the same one.
    (only,) = client.decide(TIC_TAC_TOE, "small", moves, seed=5, options={"num_steps": 4}).lines
    assert only["decision"]["line"] == decision["line"]


def test_the_same_seed_gives_the_same_decision_and_one_is_drawn_without(client: Client) -> None:
    def asked(**fields: Any) -> Any:
        (line,) = client.decide("chess", "random", **fields).lines
        return line["decision"]

    assert asked(seed=7)["move"] == asked(seed=7)["move"]
    free = [asked() for _ in range(20)]
    assert len({each["seed"] for each in free}) == 20
    assert len({each["move"] for each in free}) > 1
    assert asked(seed=free[0]["seed"])["move"] == free[0]["move"]


def test_searches_find_mate_in_one(client: Client) -> None:
    for label, least in (("mcts", 0.5), ("alphabeta", 0.99)):  # a tree tells its mean, alpha-beta the outcome
        (line,) = client.decide("chess", label, FOOLS_MATE[:3], seed=1).lines
        decision = line["decision"]
        assert (decision["move"], decision["label"]) == ("d8h4", "Qh4#")
        assert decision["win_probability"] > least
        assert decision["legality"][0] is True
        assert (decision["line"][0]["source"], decision["line"][0]["target"]) == (3, 39)  # d8, h4


def test_castling_as_the_king_on_its_rook_is_read(client: Client) -> None:
    said = client.position("chess", ["e1h1"], start="4k3/8/8/8/8/8/8/4K2R w K - 0 1")
    assert (said["moves"], said["labels"]) == (["e1g1"], ["O-O"])


def test_a_game_with_a_long_specification_is_played() -> None:
    pytest.importorskip("pyspiel", reason="needs the extra [openspiel]")
    spec = load_game("openspiel:hex").spec
    assert len(spec) > 100
    with serving(["random"], [spec]) as client:
        first = client.position(spec)["legal"][0]["move"]
        assert client.position(spec, [first])["moves"] == [first]
        assert client.decide(spec, "random", [first]).lines[-1]["decision"]["move"]


def test_a_game_that_is_over_has_no_decision(client: Client) -> None:
    reply = client.decide("chess", "random", FOOLS_MATE)
    assert reply.status == 400
    assert "over" in reply.error


@pytest.mark.parametrize(
    ("game", "start", "moves", "result"),
    [
        ("chess", None, FOOLS_MATE, None),
        ("chess", "4k3/8/8/8/8/8/4P3/4K3 b - - 3 40", ["e8d7", "e2e4"], 1),
        ("chess", None, [], 0),
        ("shogi", None, ["7g7f", "3c3d", "8h2b+"], -1),
        ("shogi", "4k4/9/9/9/9/9/9/9/4K4 w Gg 1", ["G*5e"], 1),
        ("shogi", "8k/9/8P/9/9/9/9/9/4K4 b G 1", ["G*1b"], None),
        (TIC_TAC_TOE, None, ["a1", "b1", "a2", "b2", "a3"], None),
    ],
)
def test_exported_games_are_read_back_by_the_games_own_reader(
    client: Client, tmp_path: Path, game: str, start: str | None, moves: list[str], result: int | None
) -> None:
    rules = load_game(game)
    names = ["Ann O'Neil", "small"]
    for suffix in rules.files.suffixes:
        reply = client.post(
            "/api/export",
            {"game": game, "start": start, "moves": moves, "format": suffix, "players": names, "result": result},
        )
        assert reply.status == 200, reply.body
        assert reply.headers["content-disposition"] == f'attachment; filename="game{suffix}"'
        (tmp_path / f"game{suffix}").write_bytes(reply.body)
        (read,) = rules.files.open_games(tmp_path / f"game{suffix}")
        assert read.start == rules.format(rules.parse(start))
        assert [rules.moves[move] for move in read.moves] == moves
        ended = client.position(game, moves, start=start)["outcome"]
        by_rule = None if ended is None else {0: 1, 1: -1, None: 0}[ended["winner"]]
        assert read.result == (by_rule if result is None else result)
        assert [read.headers.get(side) for side in rules.players] == names


def test_export_keeps_a_players_name_inside_its_quotes(client: Client, tmp_path: Path) -> None:
    evil = 'x"]\\ [Result "0-1'
    reply = client.post("/api/export", {"game": "chess", "moves": ["e2e4"], "players": [evil, ""], "result": 1})
    (tmp_path / "game.pgn").write_bytes(reply.body)
    (read,) = load_game("chess").files.open_games(tmp_path / "game.pgn")
    assert (read.headers["White"], read.result) == (evil, 1.0)


def test_export_refuses_what_is_no_format_no_name_and_no_result(client: Client) -> None:
    for fields, word in (
        ({"format": ".kif"}, ".pgn"),
        ({"format": "../../etc/passwd"}, ".pgn"),
        ({"players": ["a", "b", "c"]}, "players"),
        ({"players": ["a\nb"]}, "players"),
        ({"players": ["a" * 101]}, "players"),
        ({"result": 2}, "result"),
        ({"moves": FOOLS_MATE, "result": 1}, "checkmate"),
    ):
        reply = client.post("/api/export", {"game": "chess", **fields})
        assert reply.status == 400, fields
        assert word in reply.error


@pytest.mark.skipif(shutil.which("stockfish", path=ENGINE_PATH) is None, reason="needs stockfish")
def test_an_engines_limit_can_be_set_and_few_processes_are_kept() -> None:
    with serving(["engine:stockfish?nodes=500&game=chess"], []) as client:
        (policy,) = client.get("/api/offers").json["policies"]
        (option,) = policy["options"]
        assert (option["name"], option["default"], option["min"]) == ("nodes", 500, 1)
        offer = client.catalog.policies[policy["id"]]
        made: list[Any] = []
        for nodes in (1, 10, 100, 1000, 2000):
            (line,) = client.decide("chess", "engine", FOOLS_MATE[:3], options={"nodes": nodes}).lines
            assert line["decision"]["label"] == "Qh4#" or nodes < 100
            made.append(offer.settings.policy({"nodes": nodes}))
        assert len(offer.settings._made) == 3
        assert [policy.oracle._finalizer.alive for policy in made] == [False, False, True, True, True]
        assert client.decide("chess", "engine", options={"nodes": 0}).status == 400

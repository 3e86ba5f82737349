"""Games of OpenSpiel keep the laws of a game, and agree with those that were written here."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspiel", reason="open_spiel is not installed: pip install 'genpolicy[openspiel]'")

from genpolicy import load_game, load_policy
from genpolicy.chance import settled
from genpolicy.errors import IllegalMoveError
from genpolicy.game import Game
from genpolicy.testing import check_game, perft
from genpolicy_mcts.policy import PolicyModel
from genpolicy_openspiel import OpenSpielGame

SMALL = (
    "amazons,board_size=6",
    "antichess",
    "breakthrough,rows=5,columns=4",
    "clobber",
    "connect_four",
    "dots_and_boxes",
    "einstein_wurfelt_nicht",
    "go,board_size=5",
    "gomoku,size=5,connect=4",
    "hex,board_size=4",
    "mancala",
    "nim",
    "nine_mens_morris",
    "othello",
    "oware",
    "pig,winscore=20",
    "tic_tac_toe",
    "ultimate_tic_tac_toe",
)
ALL = tuple(spec for spec, why in OpenSpielGame.variants().items() if not why)
CHANCE = {"backgammon", "banqi", "einstein_wurfelt_nicht", "maedn", "pig", "yacht"}
TAKES_AGAIN = CHANCE | {
    "amazons",
    "checkers",
    "chinese_checkers",
    "cursor_go",
    "dots_and_boxes",
    "mancala",
    "nine_mens_morris",
    "ultimate_tic_tac_toe",
}
"""Games in which a player may move twice in a row."""
NOT_MARKOV = {
    "amazons",
    "antichess",
    "banqi",
    "chess",
    "chinese_checkers",
    "crazyhouse",
    "cursor_go",
    "einstein_wurfelt_nicht",
    "go",
    "hive",
    "lines_of_action",
    "nine_mens_morris",
    "quoridor",
    "yacht",
}
"""Games whose tokens do not determine the legal moves, for OpenSpiel's observation does not."""


def played(game: Game[Any], draw: random.Random, most: int = 300) -> list[Any]:
    """The positions of a random game."""
    states = [game.parse()]
    while game.outcome(states[-1]) is None and len(states) < most:
        states.append(game.play(states[-1], draw.choice(game.legal(states[-1]).tolist())))
    return states


def test_there_are_thirty_seven_games() -> None:
    assert len(ALL) == 37
    assert {f"openspiel:{name}" for name in CHANCE} <= set(ALL)
    assert len(OpenSpielGame.variants()) >= 100


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spec", SMALL)
def test_the_laws_of_a_game(spec: str) -> None:
    game = load_game(f"openspiel:{spec}")
    check_game(game, num_games=1, positions_per_game=2, bad_texts=["start ", "0 0 0 0 0 0 0 0 0", "01", "999999"])
    assert load_game(game.spec).spec == game.spec
    assert game.alternates == (game.rules.get_type().short_name not in TAKES_AGAIN)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ALL)
def test_the_laws_of_all_games(spec: str) -> None:
    game = load_game(spec)
    check_game(game, num_games=5)
    assert load_game(game.spec).spec == game.spec
    assert game.alternates == (game.rules.get_type().short_name not in TAKES_AGAIN)


def check_agreement(ours: Game[Any], theirs: Game[Any], id_of: Any, num_games: int) -> None:
    """The same legal moves and outcomes in random games; ``id_of`` maps our move to theirs."""
    draw = random.Random(7)
    for _ in range(num_games):
        state, other = ours.parse(), theirs.parse()
        while True:
            assert sorted(id_of(move) for move in ours.legal(state).tolist()) == theirs.legal(other).tolist()
            assert ours.outcome(state) == theirs.outcome(other)
            assert ours.player(state) == theirs.player(other)
            if ours.outcome(state) is not None:
                break
            move = draw.choice(ours.legal(state).tolist())
            state, other = ours.play(state, move), theirs.play(other, id_of(move))


PAIRS = (
    ("connect:rows=3,cols=3,k=3,gravity=false", "openspiel:tic_tac_toe"),
    ("connect:rows=6,cols=7,k=4,gravity=true", "openspiel:connect_four"),
)


@pytest.mark.parametrize("num_games", [60, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_connect_is_the_same_game(ours: str, theirs: str, num_games: int) -> None:
    check_agreement(load_game(ours), load_game(theirs), lambda move: move, num_games)


@pytest.mark.parametrize("num_games", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_pig_is_the_same_game(num_games: int) -> None:
    ours, theirs, draw = load_game("pig:goal=20"), load_game("openspiel:pig,winscore=20"), random.Random(7)
    thrown = 0
    for _ in range(num_games):
        state, other = ours.parse(), theirs.parse()
        while ours.outcome(state) is None:
            assert ours.player(state) == theirs.player(other)
            shares, legal = ours.chance(state), ours.legal(state)
            if shares is None:
                assert theirs.chance(other) is None
                assert set(legal) <= set(theirs.legal(other))  # theirs lets a player hold nothing
                move = theirs_move = draw.choice(legal.tolist())
            else:
                assert theirs.chance(other) == pytest.approx(shares, rel=1e-12)
                face, thrown = draw.randrange(len(legal)), thrown + 1
                move, theirs_move = legal[face], theirs.legal(other)[face]
            state, other = ours.play(state, int(move)), theirs.play(other, int(theirs_move))
        other = theirs.play(other, 1)  # in theirs the goal has to be held
        first = [
            game.outcome(at) == (1 if game.player(at) == 0 else -1) for game, at in ((ours, state), (theirs, other))
        ]
        assert first[0] == first[1]
    assert thrown > num_games


def test_backgammons_dice() -> None:
    game = load_game("openspiel:backgammon")
    start = game.parse()
    shares = game.chance(start)
    assert shares == pytest.approx([1 / 30] * 30)  # the first throw shows two different numbers
    began = [game.player(game.play(start, move)) for move in game.legal(start).tolist()]
    assert began.count(0) == began.count(1) == 15  # and the higher one begins
    after = game.play(start, int(game.legal(start)[0]))
    after = game.play(after, int(game.legal(after)[0]))
    assert sorted({round(36 * share) for share in game.chance(after).tolist()}) == [1]  # type: ignore[union-attr]
    assert game.format(game.parse(game.format(after))) == game.format(after)


def test_a_search_is_tried_out_where_a_player_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    # In EinStein two throws of 720 outcomes each come first: 518,400 positions, if the search began before them.
    asked, judge = list[Any](), PolicyModel.judge
    monkeypatch.setattr(PolicyModel, "judge", lambda model, states: (asked.extend(states), judge(model, states))[1])
    game = load_game("openspiel:backgammon")
    load_policy("mcts:random?value=even", game=game)
    assert [game.chance(state) for state in asked] == [None]


@pytest.mark.parametrize("spec", ["chess", "chess,chess960=true", "einstein_wurfelt_nicht", "maedn", "pig"])
def test_player_0_moves_first_where_no_dice_decide_it(spec: str) -> None:
    game = load_game(f"openspiel:{spec}")
    for seed in range(5):
        state, _ = settled(game, game.parse(), random.Random(seed))
        assert game.player(state) == 0


def test_a_search_plays_a_game_with_dice() -> None:
    from genpolicy_mcts.policy import MctsPolicy

    game = load_game("openspiel:pig,winscore=4,diceoutcomes=2")
    policy = MctsPolicy.from_spec("rollout", {"game": game, "simulations": 64})
    state = game.play(game.play(game.parse(), 0), int(game.legal(game.play(game.parse(), 0))[1]))
    assert game.moves[policy.decide([state])[0].move] in ("0", "1")
    policy.close()


def test_perft_is_that_of_the_games_here() -> None:
    tic_tac_toe, connect_four = load_game("openspiel:tic_tac_toe"), load_game("openspiel:connect_four")
    # 9!/(9-n)! up to the first wins; 7^n up to the first full column.
    assert [perft(tic_tac_toe, tic_tac_toe.parse(), depth) for depth in (1, 2, 3, 4)] == [9, 72, 504, 3024]
    assert [perft(connect_four, connect_four.parse(), depth) for depth in (1, 2, 3)] == [7, 49, 343]


@pytest.mark.slow
@pytest.mark.parametrize(("specs", "depth"), [(PAIRS[0], 9), (PAIRS[1], 6)])
def test_perft_to_the_end(specs: tuple[str, str], depth: int) -> None:
    counts = [perft(game, game.parse(), depth) for game in map(load_game, specs)]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(("num_games", "plies"), [(1, 60), pytest.param(200, 1000, marks=pytest.mark.slow)])
def test_chess_is_the_same_game(num_games: int, plies: int) -> None:
    """FEN, legal moves and outcomes; OpenSpiel's player 0 is Black, and here White moves first."""
    pytest.importorskip("chess")
    ours, theirs = load_game("chess"), load_game("openspiel:chess")
    draw, sampled = random.Random(11), 0
    for _ in range(num_games):
        state, other = ours.parse(), theirs.parse()
        for ply in range(plies):
            assert str(other.spiel) == ours.format(state)
            outcome = theirs.outcome(other)
            assert ours.outcome(state) == outcome
            assert ours.player(state) == theirs.player(other)
            if outcome is not None:
                break
            legal = {other.spiel.parse_move_to_action(ours.moves[m]): m for m in ours.legal(state).tolist()}
            if ply % 8 == 0 or num_games > 1:
                assert sorted(legal) == theirs.legal(other).tolist()
                sampled += 1
            move = draw.choice(sorted(legal))
            state, other = ours.play(state, legal[move]), theirs.play(other, move)
    assert sampled >= 8


def rearranged(game: Game[Any], states: list[Any], draw: random.Random) -> Any | None:
    """The end of a game whose players made the same last moves in another order; None where that is not legal."""
    ids, first = game.history(states[-1])[1], max(0, len(states) - 1 - draw.randrange(3, 9))
    one, other = list(ids[first::2]), list(ids[first + 1 :: 2])
    draw.shuffle(one)
    draw.shuffle(other)
    state = states[first]
    for ply in range(len(ids) - first):
        move = (other if ply % 2 else one)[ply // 2]
        if game.outcome(state) is not None or move not in game.legal(state):
            return None
        state = game.play(state, move)
    return state


def check_markov(spec: str, num_positions: int) -> None:
    """Random games hardly come to one position twice, so the last moves are made in other orders, too."""
    game, draw, seen, number = load_game(spec), random.Random(5), dict[bytes, list[int]](), 0
    clashes = 0
    while number < num_positions:
        states = played(game, draw)
        ends = [states[: draw.randrange(2, len(states) + 1)] for _ in range(10)] if len(states) > 1 else []
        states += [state for end in ends if (state := rearranged(game, end, draw)) is not None]
        states = [state for state in states if game.outcome(state) is None]
        for state, row in zip(states, game.tokens.encode(states), strict=True):
            legal = game.legal(state).tolist()
            clashes += seen.setdefault(row.tobytes(), legal) != legal
            number += 1
    name = spec.removeprefix("openspiel:").partition(",")[0]
    assert clashes == 0 or name in NOT_MARKOV, f"{clashes} of {number}"


@pytest.mark.parametrize(
    "spec", ["breakthrough,rows=3,columns=2", "othello", "oware", "connect_four", "mancala", "pig,winscore=20"]
)
def test_tokens_determine_the_legal_moves(spec: str) -> None:
    check_markov(f"openspiel:{spec}", 600)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ALL)
def test_tokens_determine_the_legal_moves_in_5000_positions(spec: str) -> None:
    check_markov(spec, 5000)


@pytest.mark.parametrize(
    ("spec", "share"),
    [("breakthrough", 1.0), ("clobber", 1.0), ("lines_of_action", 1.0), ("othello", 0.9), ("hex,board_size=4", 1.0)],
)
def test_moves_have_the_squares_that_they_change(spec: str, share: float) -> None:
    game, draw = load_game(f"openspiel:{spec}"), random.Random(3)
    moves, placed, total = game.moves, 0, 0
    for _ in range(3):
        states = played(game, draw)
        rows = game.tokens.encode(states)
        for state, after, before_row, after_row in zip(states, states[1:], rows, rows[1:], strict=False):
            move = after.spiel.history()[-1]
            total += 1
            if moves.target[move] < 0:
                continue
            placed += 1
            for place in {int(moves.source[move]), int(moves.target[move])} - {-1}:
                assert before_row[place] != after_row[place], (game.format(state), move)
    assert placed >= share * total > 0


@pytest.mark.parametrize("size", [2, 19])
def test_moves_of_a_cursor_have_no_squares(size: int) -> None:
    """A plane that shows the turn changes in every cell, whatever the squares of a move are taken for."""
    game = load_game(f"openspiel:cursor_go,board_size={size}")
    assert {*game.moves.source.tolist(), *game.moves.target.tolist()} == {-1}


def test_a_falling_stone_has_the_square_in_which_it_comes_to_rest() -> None:
    from genpolicy_play.drawing import move_places

    game = load_game("openspiel:connect_four")
    state, tokens = game.parse(), game.tokens
    for height in range(6):
        place = move_places(game, state, 2)[1]
        assert (tokens.rows[place], tokens.cols[place]) == (5 - height, 2)
        state = game.play(state, 2)


def test_boards_are_drawn_with_the_letters_and_the_way_up_of_openspiel() -> None:
    for spec in ("breakthrough,rows=5,columns=4", "othello", "connect_four", "chess", "go,board_size=5"):
        game = load_game(f"openspiel:{spec}")
        state = played(game, random.Random(1), 12)[-1]
        row, tokens = game.tokens.encode([state])[0], game.tokens
        num_rows, num_cols = int(tokens.rows.max()) + 1, int(tokens.cols.max()) + 1
        grid = [[""] * num_cols for _ in range(num_rows)]
        for place in np.flatnonzero(tokens.rows >= 0):
            grid[tokens.rows[place]][tokens.cols[place]] = tokens.symbols[row[place]]
        shown = game.view.board_text(state)
        if spec == "chess":
            import chess

            shown = str(chess.Board(shown))
        lines = ["".join(c for c in line if not c.isspace()).lstrip("0123456789") for line in shown.splitlines()]
        lines = [line.rstrip("0123456789") for line in lines]
        drawn = ["".join(line) for line in grid]
        assert any(lines[at : at + num_rows] == drawn for at in range(len(lines)))


def test_moves_are_read_by_name_and_by_number() -> None:
    game = load_game("openspiel:breakthrough,rows=5,columns=4")
    state = game.parse()
    move = int(game.legal(state)[0])
    name = game.view.move_text(state, move)
    assert (name, game.moves[move]) == ("a5a4", str(move))
    assert game.move_from_text(state, f" {name} ") == game.move_from_text(state, str(move)) == move
    with pytest.raises(IllegalMoveError, match=r"a5a4 \(\d+\)"):
        game.move_from_text(state, str(move + 1))
    with pytest.raises(ValueError, match="not a move of this vocabulary"):
        game.move_from_text(state, "a9")
    mancala = load_game("openspiel:mancala")  # its names are numbers, and the numbers its ids
    assert [mancala.view.move_text(mancala.parse(), m) for m in mancala.legal(mancala.parse()).tolist()] == [
        str(m) for m in mancala.legal(mancala.parse()).tolist()
    ]


class Asked:
    """A state of OpenSpiel that counts how often it is asked for a move's name."""

    def __init__(self, spiel: Any) -> None:
        self.spiel, self.count = spiel, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spiel, name)

    def action_to_string(self, action: int) -> str:
        self.count += 1
        return str(self.spiel.action_to_string(action))


def test_each_name_is_asked_for_once() -> None:
    """The page names every move of a position, of which a throw of five dice has 7,776."""
    game = load_game("openspiel:yacht,num_dice=2")
    start = game.parse()
    asked = Asked(start.spiel)
    state = replace(start, spiel=asked)
    legal = game.legal(state).tolist()
    assert len({game.view.move_text(state, move) for move in legal}) == asked.count == len(legal) == 36


def test_a_repeated_position_has_tokens() -> None:
    """Random play did not show what crazyhouse observes of it."""
    game = load_game("openspiel:crazyhouse")
    state = game.parse()
    for name in ("Nf3", "Nf6", "Ng1", "Ng8", "Nf3", "Nf6"):
        state = game.play(state, game.move_from_text(state, name))
        assert game.tokens.encode([state]).shape == (1, game.tokens.length)


def test_no_positions_make_no_rows() -> None:
    for spec in ("breakthrough", "chess", "mancala"):  # cells alone, with single numbers, numbers alone
        tokens = load_game(f"openspiel:{spec}").tokens
        assert tokens.encode([]).shape == (0, tokens.length)


def test_two_orders_of_the_same_stones_have_one_key() -> None:
    game = load_game("openspiel:tic_tac_toe")
    one, other, third = game.parse("0 3 1"), game.parse("1 3 0"), game.parse("0 4 1")
    assert game.key(one) == game.key(other) != game.key(third)
    assert game.format(one) != game.format(other)


def test_a_long_game_keeps_its_text() -> None:
    """Games of OpenSpiel may be longer than the 400 plies to which laws play."""
    game = load_game("openspiel:chinese_checkers")
    states = played(game, random.Random(0), 460)
    assert len(states) == 460
    text = game.format(states[-1])
    again = game.parse(text)
    assert game.format(again) == text
    assert game.key(again) == game.key(states[-1])


@pytest.mark.parametrize("options", ["", ",king_of_hill=true", ",sticky_promotions=true", ",insanity=3"])
def test_a_repeated_position_can_be_read(options: str) -> None:
    game = load_game(f"openspiel:crazyhouse{options}")
    assert game.tokens.encode([game.parse("652 652 217 217")]).shape == (1, game.tokens.length)


def test_outcomes_are_the_signs_of_openspiels_returns() -> None:
    for spec in ("chess", "connect_four", "checkers", "dots_and_boxes,utility_margin=true"):
        game, draw = load_game(f"openspiel:{spec}"), random.Random(2)
        first = game.parse().spiel.current_player()
        last = played(game, draw, 3000)[-1]
        returns = last.spiel.returns()
        expected = returns[game.player(last) if first == 0 else 1 - game.player(last)]
        assert game.outcome(last) == (expected > 0) - (expected < 0)


def test_the_mated_side_has_lost_though_openspiel_counts_it_as_the_second_player() -> None:
    game = load_game("openspiel:chess")
    state = game.parse()
    assert game.rules.new_initial_state().current_player() == 1  # type: ignore[attr-defined]
    for move in ("f3", "e5", "g4", "Qh4#"):
        assert game.player(state) == (0 if move in ("f3", "g4") else 1)
        state = game.play(state, game.move_from_text(state, move))
    assert (game.player(state), game.outcome(state)) == (0, -1.0)


def test_openspiels_own_player_is_an_opponent() -> None:
    """Its tree search with 100 simulations of one rollout takes the win that is there."""
    mcts = pytest.importorskip("open_spiel.python.algorithms.mcts")
    game = load_game("openspiel:tic_tac_toe")
    bot = mcts.MCTSBot(
        game.rules,
        2.0,
        100,
        mcts.RandomRolloutEvaluator(1, np.random.RandomState(1)),
        random_state=np.random.RandomState(1),
    )
    state = game.parse("0 3 1 4")  # 2 completes the row
    assert bot.step(state.spiel) in game.legal(state)
    assert game.outcome(game.play(state, bot.step(state.spiel))) == -1.0

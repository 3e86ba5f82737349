"""The laws of a game: what the library relies on in every ``Game``, tried on random play.

Axes: B batch, L tokens of a state, S state symbols, M moves of the vocabulary.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any

import numpy as np

from genpolicy.facets import defined_hints, evaluation, gives_evaluation
from genpolicy.game import Game, Hints
from genpolicy.testing.encodings import check_moves, check_row, check_tokens, described
from genpolicy.testing.identity import KEY_PLIES, Identity

Perft = Mapping[Any, Any]
MAX_PLIES = 400  # by the piece rules bare kings play for ever; random chess meets claimable draws long before
MAX_MOVES = 20  # moves of one position on which the laws of play are tried
SHARED_READS = 16
SHARED_INTERVAL_S = 1e-6  # between two switches of threads; Python's own 5 ms hide most races


def perft(game: Game[Any], state: Any, depth: int) -> int:
    """Number of move sequences of ``depth`` plies from a position; sequences that end before are not counted."""
    legal = game.legal(state)
    if depth <= 1:
        return len(legal) if depth == 1 else 1
    return sum(perft(game, game.play(state, int(move)), depth - 1) for move in legal)


def check_game(
    game: Game[Any],
    *,
    num_games: int = 10,
    positions_per_game: int = 10,
    seed: int = 0,
    texts: Sequence[str] = (),
    perft: Perft | None = None,
    bad_texts: Sequence[str] = (),
    colour_swap: Callable[[Any], Any] | None = None,
) -> None:
    """Try every law of ``Game`` on its tables, on ``texts`` and on random games.

    Args:
        game: The game.
        num_games: Random games, from the initial position and from ``texts`` in turn. They are played to the end by
            the piece rules, past every draw that a player could claim.
        positions_per_game: Positions of each game on which all laws are tried; the cheap ones are tried on all.
        seed: Seed of the random play.
        texts: Position texts, as ``format`` writes them, on which all laws are tried: promotions, drops, rare rights.
        perft: Published counts: ``{depth: nodes}`` from the initial position, ``{text: {depth: nodes}}`` from others.
        bad_texts: Texts that are not positions.
        colour_swap: Maps a position to the one with the players exchanged, as player 1 sees it, where that is a
            position of the game. Then player 1's view is checked against it.

    Raises:
        AssertionError: a law does not hold; the message says which, of which game, in which position.
    """
    laws = _Laws(game, np.random.default_rng(seed), colour_swap)
    try:
        _check_all(laws, num_games, positions_per_game, texts, bad_texts, perft or {})
    except AssertionError:
        raise
    except Exception as error:  # whatever a broken game raises is part of the report
        raise AssertionError(
            f"{game.spec}: law broken in or after {laws.at!r}: what is legal works ({type(error).__name__}: {error})"
        ) from error


def _check_all(
    laws: _Laws, num_games: int, num_positions: int, texts: Sequence[str], bad_texts: Sequence[str], counts: Perft
) -> None:
    game = laws.game
    check_moves(game)
    check_tokens(game)
    laws.start()
    for bad in ("", "not a position", *bad_texts):
        laws.bad_text(bad)
    _check_perft(game, counts)
    reached = laws.identity.positions()
    starts = [None, *texts]
    for text in texts:
        laws.hold("a text of the game is written as it was read", text, game.format(game.parse(text)) == text)
        laws.everything(game.parse(text))
    for number in range(num_games):
        start = starts[number % len(starts)]
        _check_random_game(laws, game.parse(start), num_positions, reached if start is None else None)


def _check_perft(game: Game[Any], counts: Perft) -> None:
    for key, value in counts.items():
        text, by_depth = (None, {key: value}) if isinstance(key, int) else (key, value)
        for depth, nodes in by_depth.items():
            got = perft(game, game.parse(text), depth)
            if got != nodes:
                raise AssertionError(f"{game.spec}: perft({depth}) of {text or 'the start'!r} is {got}, not {nodes}")


def _check_random_game(laws: _Laws, state: Any, num_positions: int, reached: set[str] | None) -> None:
    game, states = laws.game, [state]
    legal = laws.cheap(state)
    while len(legal) and len(states) < MAX_PLIES:
        text, before = game.format(states[-1]), states[-1]
        states.append(game.play(before, int(laws.random.choice(legal))))
        laws.hold("play leaves its argument as it was", text, game.format(before) == text)
        legal = laws.cheap(states[-1])
    chosen = {0, len(states) - 1, *laws.random.integers(len(states), size=num_positions).tolist()}
    claimable = [i for i, s in enumerate(states) if game.outcome(s) is not None]
    for i in sorted(chosen | set(claimable[:1])):
        laws.everything(states[i])
    laws.shared(states[len(states) // 2])
    if reached is not None:
        played = [game.format(s) for s in states if game.outcome(s) is None and game.chance(s) is None]
        missing = [text for text in played if text not in reached]
        laws.hold("positions gives every position that play reaches", missing[0] if missing else "", not missing)
    start, moves = game.history(states[-1])
    replayed = game.parse(start)
    for move in moves:
        replayed = game.play(replayed, move)
    text = game.format(states[-1])
    laws.hold("history leads to the position", text, game.format(replayed) == text, f"from {start!r}")
    if moves:  # a game without histories gives the position alone
        laws.hold("history carries repetitions", text, game.outcome(replayed) == game.outcome(states[-1]))
    # One batch of all positions: no row depends on the others.
    viewers = laws.random.integers(2, size=len(states))
    rows = game.tokens.encode(states, viewers)
    for s, viewer, row in zip(states, viewers.tolist(), rows, strict=True):
        alone = game.tokens.encode([s], [viewer])[0]
        laws.hold("a row of encode does not depend on the others", game.format(s), np.array_equal(alone, row))


class _Laws:
    """The laws of single positions; each method raises AssertionError."""

    def __init__(self, game: Game[Any], random: np.random.Generator, colour_swap: Callable[[Any], Any] | None) -> None:
        self.game, self.random, self.colour_swap = game, random, colour_swap
        self.at = "the start"
        """Text of the position under test, for the message when a broken game raises something else."""
        self.swaps: dict[str, bool] = {}  # symmetry -> whether it exchanges the players
        self.identity = Identity(game, self.hold)

    def hold(self, law: str, text: str, holds: object, detail: object = "") -> None:
        if not holds:
            more = f" ({detail})" if str(detail) else ""
            raise AssertionError(f"{self.game.spec}: law broken in {text!r}: {law}{more}")

    def tried(self, law: str, text: str, what: object, call: Callable[..., Any], *given: Any) -> Any:
        """What a call gives, or the ValueError by which it refuses ``what``; any other exception breaks the law."""
        try:
            return call(*given)
        except ValueError as error:
            return error
        except Exception as error:
            self.hold(law, text, False, f"{what} raised {type(error).__name__}: {error}".strip())

    def start(self) -> None:
        game = self.game
        start = game.parse()
        text = game.format(start)
        self.hold("spec begins with the game's name", game.spec, game.spec.partition(":")[0] == game.name)
        self.hold("protocol is uci, usi or none", game.spec, game.protocol in ("uci", "usi", "none"), game.protocol)
        self.hold("players are two names", game.spec, len(set(game.players)) == 2, game.players)
        self.hold("player 0 moves first from the initial position", text, game.player(start) == 0)
        self.hold("the game runs in the initial position", text, game.outcome(start) is None)
        self.hold("parse() makes the same position each time", text, game.key(start) == game.key(game.parse()))
        self.identity.check_spec()

    def bad_text(self, text: str) -> None:
        law = "a text that is not a position is a ValueError"
        made = self.tried(law, text, "", self.game.parse, text)
        if not isinstance(made, ValueError):
            self.hold(law, text, False, f"parsed as {self.game.format(made)!r}")
        quoted = repr(text) in str(made) or (text and text in str(made))
        self.hold("a bad text's ValueError quotes it", text, quoted, made)

    def cheap(self, state: Any) -> np.ndarray[Any, Any]:
        """What is tried on every position; the legal ids."""
        game = self.game
        text = self.at = game.format(state)
        legal = game.legal(state)
        is_row = isinstance(legal, np.ndarray) and legal.dtype == np.int64 and legal.ndim == 1
        self.hold("legal gives int64 ids", text, is_row, described(legal))
        self.hold("legal ids are sorted and each there once", text, bool((np.diff(legal) > 0).all()), legal)
        inside = len(legal) == 0 or (legal[0] >= 0 and legal[-1] < len(game.moves))
        self.hold("legal ids lie inside the vocabulary", text, inside, legal)
        self.hold("player is 0 or 1", text, game.player(state) in (0, 1), game.player(state))
        outcome = game.outcome(state)
        is_number = outcome is None or (isinstance(outcome, Real) and not isinstance(outcome, bool))
        self.hold("outcome is a number, not a truth value", text, is_number, repr(outcome))
        self.hold("outcome lies in [-1, 1] or is None", text, outcome is None or -1 <= outcome <= 1, outcome)
        self.hold("without a legal move there is an outcome", text, len(legal) > 0 or outcome is not None)
        self.chance(state, text, legal)
        self.identity.check_keys(state, text, legal)
        self.hold("format(parse(format(s))) = format(s)", text, game.format(game.parse(text)) == text)
        return legal

    def chance(self, state: Any, text: str, legal: np.ndarray[Any, Any]) -> None:
        """Nature's moves: a distribution over the legal ones, while the game runs."""
        shares = self.game.chance(state)
        if shares is None:
            return
        self.hold("a game with chance says so (has_chance)", text, self.game.has_chance)
        self.hold("chance has an outcome", text, len(legal) > 0)
        self.hold("chance gives one probability a legal move", text, shares.shape == legal.shape, shares)
        is_distribution = abs(float(shares.sum()) - 1) < 1e-9 and float(shares.min()) >= 0
        self.hold("probabilities of chance sum to 1", text, is_distribution, shares)
        self.hold("where chance decides the game runs", text, self.game.outcome(state) is None)

    def everything(self, state: Any) -> None:
        text = self.game.format(state)
        before = self.snapshot(state)
        for law in (self.text, self.views, self.moves, self.illegal, self.symmetry, self.swap, self.extras):
            law(state, text)
            self.hold(f"nothing changes its argument (law {law.__name__!r})", text, self.snapshot(state) == before)

    def snapshot(self, state: Any) -> tuple[Any, ...]:
        game = self.game
        legal, row = game.legal(state).tolist(), list(game.tokens.encode([state])[0])
        chance = None if (shares := game.chance(state)) is None else shares.tolist()
        return game.format(state), legal, row, game.player(state), game.outcome(state), game.key(state), chance

    def shared(self, state: Any) -> None:
        """Servers share a position among threads, so reading it must not change it even for a moment."""
        text = self.at = self.game.format(state)
        legal = self.game.legal(state)[:3].tolist()

        def read(_: object = None) -> tuple[Any, ...]:
            written = [self.game.view.move_text(state, move) for move in legal]
            played = [self.game.format(self.game.play(state, move)) for move in legal]
            return *self.snapshot(state), self.game.view.board_text(state), written, played

        alone, interval = read(), sys.getswitchinterval()
        sys.setswitchinterval(SHARED_INTERVAL_S)
        try:
            with ThreadPoolExecutor(2) as pool:
                together = list(pool.map(read, range(SHARED_READS)))
        finally:
            sys.setswitchinterval(interval)
        self.hold("threads may read one position at a time", text, all(each == alone for each in together))

    def text(self, state: Any, text: str) -> None:
        game = self.game
        again = game.parse(text)
        self.hold("a text keeps the legal moves", text, np.array_equal(game.legal(again), self.cheap(state)))
        self.hold("a text keeps the player to move", text, game.player(again) == game.player(state))
        self.hold("a text keeps the key", text, game.key(again) == game.key(state))
        self.hold("a text is one line", text, "\n" not in text)

    def views(self, state: Any, text: str) -> None:
        tokens = self.game.tokens
        for viewer in (0, 1):
            row = tokens.encode([state], [viewer])[0]
            check_row(self.game, row, text)
            if not tokens.decodes:
                continue
            seen = tokens.decode(row, viewer)
            written, same = self.game.format(seen), np.array_equal(self.game.legal(seen), self.game.legal(state))
            self.hold(f"decode(encode(s)) has the text of s, viewer {viewer}", text, written == text, written)
            self.hold(f"a decoded state has the same legal moves, viewer {viewer}", text, same)
            again = tokens.encode([seen], [viewer])[0]
            self.hold(f"encode(decode(row)) = row, viewer {viewer}", text, np.array_equal(again, row))
            self.damaged(row, viewer, text)
        absolute = tokens.encode([state], [0])
        self.hold("without viewers the view is player 0's", text, np.array_equal(tokens.encode([state]), absolute))
        if (turned := tokens.turned) is not None:
            self.hold("turned is a property that gives (places, symbols)", text, isinstance(turned, tuple))
            places, symbols = turned
            other = tokens.encode([state], [1])[0]
            self.hold("turned makes the other side's row", text, np.array_equal(symbols[absolute[0][places]], other))
            self.hold("turned is its own inverse", text, np.array_equal(symbols[other[places]], absolute[0]))

    def damaged(self, row: np.ndarray[Any, Any], viewer: int, text: str) -> None:
        """Rows that stand for no position are refused; a row that decodes is encoded again as it was."""
        tokens = self.game.tokens
        place = int(self.random.integers(len(row)))
        other = int(self.random.choice(np.flatnonzero(tokens.admitted[place])))
        changed = row.copy()
        changed[place] = other
        law = "decode refuses a row that stands for no position by a ValueError"
        seen = self.tried(law, text, changed, tokens.decode, changed, viewer)
        if not isinstance(seen, ValueError):
            again = tokens.encode([seen], [viewer])[0]
            law = "encode(decode(row)) = row for a row with one token changed"
            self.hold(law, text, np.array_equal(again, changed), f"{changed} became {again}")
        outside = np.append(np.flatnonzero(~tokens.admitted[place]), [-1, len(tokens.symbols)])
        changed[place] = self.random.choice(outside)
        law = "decode refuses by a ValueError a row of a wrong length or with a symbol not admitted there"
        for bad in (changed, row[:-1], np.append(row, row[-1])):
            self.hold(law, text, isinstance(self.tried(law, text, bad, tokens.decode, bad, viewer), ValueError), bad)

    def some(self, moves: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self.random.permutation(moves)[:MAX_MOVES]

    def moves(self, state: Any, text: str) -> None:
        game = self.game
        for move in self.some(game.legal(state)):
            name = game.moves[int(move)]
            after = game.play(state, int(move))
            self.cheap(after)
            if game.alternates:
                law = "players alternate (set `alternates = False` if a player may move twice)"
                self.hold(law, text, game.player(after) != game.player(state), name)
            if game.chance(after) is not None:
                law = "where chance decides player is who moved last"
                self.hold(law, text, game.player(after) == game.player(state), name)
            same = game.format(game.play(state, move)) == game.format(after)
            self.hold("play gives the same position each time, int or numpy id", text, same, name)
            self.hold("play changes the position", text, game.format(after) != text, name)
            self.hold("move_from_text reads the protocol move", text, game.move_from_text(state, name) == move, name)
            self.left(state, after, int(move), text)
            self.count(state, after, int(move), text)
        self.hold("play leaves its argument as it was", text, game.format(state) == text)

    def left(self, state: Any, after: Any, move: int, text: str) -> None:
        """Captures, promotions and drops leave what the tables of the tokenizers say, as both players see them."""
        moves, name = self.game.moves, self.game.moves[move]
        for tokens, viewer in itertools.product((self.game.tokens, *self.game.tokenizers.values()), (0, 1)):
            if tokens.captured is None and tokens.promoted is None and tokens.dropped is None:
                continue
            seen = int(moves.seen_by(np.array(move), viewer))
            source, target = int(moves.source[seen]), int(moves.target[seen])
            row, then = tokens.encode([state, after], [viewer, viewer]).astype(np.int64)
            count = int(tokens.captured[row[target]]) if tokens.captured is not None and target >= 0 else -1
            if count >= 0:
                more = np.flatnonzero(tokens.admitted[count])
                held = more[more > row[count]][:1].tolist()
                law = "a captured piece adds one to its count (tokens.captured)"
                self.hold(law, text, held == [then[count]], name)
            if source < 0 or target < 0:
                continue
            if tokens.promoted is not None and tokens.rows[source] >= 0:
                law = "a move leaves on its target what tokens.promoted says"
                self.hold(law, text, then[target] == tokens.promoted[moves.kind[seen], row[source]], name)
            if tokens.dropped is not None and viewer == self.game.player(state) and tokens.dropped[source] >= 0:
                fewer = np.flatnonzero(tokens.admitted[source])
                held = fewer[fewer < row[source]][-1:].tolist()
                law = "a drop puts its piece on the target and takes one from its count (tokens.dropped)"
                self.hold(law, text, held == [then[source]] and then[target] == tokens.dropped[source], name)

    def count(self, state: Any, after: Any, move: int, text: str) -> None:
        """What counts moves grows by one with each, or begins anew."""
        for tokens in (self.game.tokens, *self.game.tokenizers.values()):
            if not tokens.counters:
                continue
            rows = tokens.encode([state, after], [0, 0]).astype(np.int64)
            for counter in tokens.counters:
                before, then = 0, 0
                for place in counter:
                    held = np.flatnonzero(tokens.admitted[place]).tolist()
                    before, then = (
                        n * len(held) + held.index(row[place]) for n, row in zip((before, then), rows, strict=True)
                    )
                law = "a count of moves grows by one or begins anew (tokens.counters)"
                self.hold(law, text, then in (0, before + 1), self.game.moves[move])

    def illegal(self, state: Any, text: str) -> None:
        game = self.game
        others = np.setdiff1d(np.arange(len(game.moves)), game.legal(state))
        some = self.random.choice(others, size=min(5, len(others)), replace=False).tolist()
        law = "an illegal move is a ValueError"
        for move in [*some, -1, len(game.moves)]:
            name = game.moves[move] if 0 <= move < len(game.moves) else str(move)
            made = self.tried(law, text, f"move {name}", game.play, state, move)
            self.hold(law, text, isinstance(made, ValueError), f"move {name}")
            named = name in str(made) and text in str(made)
            self.hold("the error of an illegal move names it and the position", text, named, made)

    def symmetry(self, state: Any, text: str) -> None:
        game = self.game
        legal = game.legal(state)
        for sym in game.symmetries:
            copy = sym.state(state)
            where = f"symmetry {sym.name!r}"
            bijective = np.array_equal(np.sort(sym.moves), np.arange(len(game.moves)))
            self.hold(f"{where} maps moves one to one", text, bijective)
            commutes = np.array_equal(np.sort(sym.moves[legal]), game.legal(copy))
            self.hold(f"{where} commutes with legal", text, commutes, game.format(copy))
            swaps = game.player(copy) != game.player(state)
            always = self.swaps.setdefault(sym.name, swaps)
            law = f"{where} keeps the player to move always, or exchanges the players always"
            self.hold(law, text, swaps == always)
            self.hold(f"{where} keeps the outcome", text, game.outcome(copy) == game.outcome(state))
            same = game.canonical_key(copy) == game.canonical_key(state)
            group = "symmetries must be a whole group without its identity: add what two of them make together"
            self.hold(f"{where} keeps the canonical key", text, same, group)
            for move in self.some(legal):
                mapped_after = game.key(sym.state(game.play(state, int(move))))
                played_after = game.key(game.play(copy, int(sym.moves[move])))  # counters may differ
                self.hold(f"{where} commutes with play", text, mapped_after == played_after, game.moves[int(move)])

    def swap(self, state: Any, text: str) -> None:
        if self.colour_swap is None:
            return
        game = self.game
        other = self.colour_swap(state)
        self.hold("colour_swap exchanges the players", text, game.player(other) == 1 - game.player(state))
        same = np.array_equal(game.tokens.encode([state], [1])[0], game.tokens.encode([other], [0])[0])
        self.hold("player 1 sees what player 0 sees of the swapped position", text, same)
        same = np.array_equal(np.sort(game.moves.mirrored[game.legal(state)]), game.legal(other))
        self.hold("mirrored maps the legal moves to the swapped position's", text, same)
        same = game.outcome(game.parse(game.format(other))) == game.outcome(game.parse(text))
        self.hold("the outcome for the player to move survives the swap", text, same)
        if gives_evaluation(game):
            mine, theirs = (evaluation(game)(game.parse(each)) for each in (text, game.format(other)))
            law = "hints.evaluate, for the player to move, survives the swap"
            self.hold(law, text, abs(mine - theirs) <= 1e-6, f"{mine} becomes {theirs}")

    def extras(self, state: Any, text: str) -> None:
        """The facets and the other optional members: each does what it declares."""
        game = self.game
        self.hold("view.board_text is text", text, isinstance(game.view.board_text(state), str))
        pieces = game.view.drawing.pieces.values()
        unwanted = [svg for svg in pieces if re.search(r"<(script|style|image)|\b(id|style|on\w+)=", svg)]
        self.hold("pictures of pieces have no id, style or script", text, not unwanted, unwanted[:1])
        place = game.view.check(state)
        inside = place is None or 0 <= place < game.tokens.length
        self.hold("view.check is the index of a state token or None", text, inside, place)
        for move in game.legal(state)[:1].tolist():
            written = game.view.move_text(state, move)
            self.hold("move_from_text reads view.move_text", text, game.move_from_text(state, written) == move, written)
        outcome = game.outcome(state)
        if outcome is not None:
            self.hold("view.ending is text", text, isinstance(game.view.ending(state), str))
        if outcome:
            winner = game.player(state) if outcome > 0 else 1 - game.player(state)
            self.hold("view.can_win is true of who has won", text, game.view.can_win(state, winner) is True, winner)
        if game.hints is not None:
            self.hints(game.hints, state, text)
        try:
            planes = game.planes([state, state])
        except ValueError:  # the game supplies none
            return
        shaped = planes.ndim == 4 and len(planes) == 2 and planes.dtype == np.float32
        self.hold("planes are [B, channels, rows, columns] in float32", text, shaped)

    def hints(self, hints: Hints[Any], state: Any, text: str) -> None:
        game = self.game
        unknown = set(hints.gives) - {"evaluate", "forcing", "transposition_key"}
        self.hold("hints.gives names evaluate, forcing or transposition_key", text, not unknown, unknown)
        defined = "" if hints.gives else ", ".join(defined_hints(hints))
        self.hold("hints.gives names what hints defines", text, not defined, f"gives is empty, {defined} defined")
        if "evaluate" in hints.gives:
            self.hold("hints.evaluate lies in [-1, 1]", text, -1 <= hints.evaluate(state) <= 1, hints.evaluate(state))
        if "forcing" in hints.gives:
            self.hold("hints.is_quiet is a bool", text, isinstance(hints.is_quiet(state), bool))
            forcing = hints.forcing(state)
            legal = forcing is None or bool(np.isin(forcing, game.legal(state)).all())
            self.hold("hints.forcing gives legal moves or None", text, legal, forcing)
        if "transposition_key" in hints.gives:
            keys = [hints.transposition_key(same, KEY_PLIES) for same in (state, state)]
            self.hold("hints.transposition_key is hashable and does not change", text, len(set(keys)) == 1, keys)

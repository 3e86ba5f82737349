"""The oracle that asks an engine over UCI or USI, with several processes side by side.

An engine sees a position without its past, and forgets at the start of every block of positions (some records of a data
set; in self-play some plies of some games; each position that ``analyse`` is asked about). With a limit in nodes or
depth and one thread, the labels of a block therefore depend on the block and the limit alone: the same with one process
or eight, before a kill or after. Labelling does not forget before every position, which would cost time.
"""

from __future__ import annotations

import difflib
import os
import shutil
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from genpolicy import registry
from genpolicy.data.oracle import Line, Oracle, analysed_by_run
from genpolicy.errors import EngineError, RegistryError
from genpolicy.game import Game
from genpolicy.values import CENTIPAWN_SCALE
from genpolicy_engines.pool import MAX_ATTEMPTS, EnginePool
from genpolicy_engines.process import EngineProcess
from genpolicy_engines.protocol import DEFAULT_HASH_MB, UCI, USI, Search, SearchResult

T = TypeVar("T")
LINES = ("pv", "searched")
OWN_OPTIONS = (
    "nodes",
    "depth",
    "movetime_ms",
    "processes",
    "threads",
    "hash_mb",
    "line",
    "multipv",
    "timeout_s",
    "scale",
    "engine",
)
ENGINE_NAMES = ("hash", "usi_hash", "threads")
"""Names that engines have for two of these, in lower case."""
MORE_FOLDERS = ("/usr/games", "/usr/local/games", "/usr/local/bin", "/opt/homebrew/bin", "/snap/bin")
"""Where distributions put engines; Debian's /usr/games is in no server's PATH."""
MAX_ILLEGAL = 3
"""So many illegal answers to one search leave the position without a label."""


class EngineOracle(Oracle):
    """Labels positions with an engine's best line for both sides.

    Numbers may be given as text, as a spelling has them.

    Args:
        game: A game whose ``protocol`` is ``"uci"`` or ``"usi"``.
        engine: Path of the program, or its name.
        nodes: Limit of one search in nodes; at least one limit must be given, and the first one reached counts.
        depth: Limit in plies.
        movetime_ms: Limit in milliseconds; labels then depend on the machine.
        processes: Engine processes side by side.
        threads: Threads of each (default 1); labels are reproducible with one. Or by the engine's name, ``Threads``.
        hash_mb: Hash table of each, in MB (default 16). Or by the engine's name, ``Hash``.
        line: ``"pv"``: one search, its principal variation, searched on from its end where it is shorter than the
            horizon. ``"searched"``: a search at every step, which gives every step a score.
        multipv: Where moves get values (``--move-values``), so many of the best get them, from one search with as many
            variations; None: all, by a search each.
        timeout_s: An engine that needs longer for one search hangs: it is killed and the position tried again.
        options: Options of the engine by name, e.g. ``{"Skill Level": 5}``.
        scale: Scale of centipawns as win probability (``genpolicy.values``), for whoever reads the scores.
        attempts: Tries of a search on which the engine dies, hangs or answers an illegal move.
        with_past: Tell the engine how a game came to its positions (``Game.history``), so that it sees repetitions; for
            policies, since labels are of positions alone.
        more_options: Further options of the engine.

    Raises:
        ValueError: an argument out of range, or a game without an engine protocol.
        EngineError: no such program, it is not an engine, or it lacks an option.
    """

    def __init__(
        self,
        game: Game[Any],
        engine: str = "stockfish",
        nodes: int | str | None = None,
        depth: int | str | None = None,
        movetime_ms: int | str | None = None,
        processes: int | str = 1,
        threads: int | str | None = None,
        hash_mb: int | str | None = None,
        line: Literal["pv", "searched"] = "pv",
        multipv: int | str | None = None,
        timeout_s: float | str = 60.0,
        options: Mapping[str, Any] | None = None,
        scale: float | str = CENTIPAWN_SCALE,
        attempts: int | str = MAX_ATTEMPTS,
        with_past: bool = False,
        **more_options: Any,
    ) -> None:
        if game.protocol == "none":
            raise ValueError(f"game {game.spec!r} speaks no engine protocol; use an oracle of its own, e.g. solver")
        given = _engine_options(
            engine, {**(options or {}), **more_options}
        )  # so that a misspelt limit is not taken for a missing one
        limits = {"nodes": nodes, "depth": depth, "movetime_ms": movetime_ms}
        self._limits = {key: _at_least_1(key, value) for key, value in limits.items() if value is not None}
        if not self._limits:
            raise ValueError(
                f"engine {engine!r} needs a limit: nodes=, depth= or movetime_ms=, e.g. {engine}?nodes=2000"
            )
        if not isinstance(with_past, bool):  # a spelling gives text
            raise ValueError("with_past is for policies that are engines: an oracle's labels are of positions alone")
        if line not in LINES:
            raise ValueError(f"line must be pv or searched, got {line!r}")
        self.game = game
        self._attempts, self._with_past = _at_least_1("attempts", attempts), with_past
        self.line = line
        self.scale = _number("scale", scale)
        timeout = _number("timeout_s", timeout_s)
        dialect = UCI if game.protocol == "uci" else USI
        spelt: dict[str, str] = {}
        # The engine's own names for two of our options; describe() knows them by ours.
        self._threads = _at_least_1(*_one_of(given, spelt, "threads", threads, "Threads", 1))
        self._hash_mb = _at_least_1(*_one_of(given, spelt, "hash_mb", hash_mb, dialect.hash_option, DEFAULT_HASH_MB))
        self._options = given
        if "movetime_ms" in self._limits:
            timeout += self._limits["movetime_ms"] / 1000
        self.path = path = find_engine(engine)
        settings = {"Threads": str(self._threads), dialect.hash_option: str(self._hash_mb), **self._options}
        self._num_valued = None if multipv is None else _at_least_1("multipv", multipv)
        if self._num_valued is not None:
            if "multipv" in map(str.lower, self._options):
                raise ValueError("multipv and MultiPV are one option; give multipv, with --move-values")
            settings, spelt["MultiPV"] = {**settings, "MultiPV": str(self._num_valued)}, "multipv"
        words = {"nodes": "nodes {}", "depth": "depth {}", "movetime_ms": dialect.movetime}
        limit = " ".join(words[key].format(value) for key, value in self._limits.items())
        # The pool must not hold the oracle, or nobody would ever collect it and end its engines.
        self._pool = EnginePool(
            lambda: EngineProcess(path, dialect, settings, limit, timeout, spelt),
            _at_least_1("processes", processes),
            self._attempts,
        )
        self.name = self._pool.engines[0].name
        # Engines that nobody closed end with the oracle, or with the interpreter.
        self._finalizer = weakref.finalize(self, self._pool.close)

    def describe(self) -> dict[str, Any]:
        """What decides a label; the number of processes and the path of the program do not."""
        return {
            "name": self.name,
            "protocol": self.game.protocol,
            "limits": dict(self._limits),
            "line": self.line,
            "threads": self._threads,
            "hash_mb": self._hash_mb,
            **({} if self._num_valued is None else {"multipv": self._num_valued}),
            "options": dict(self._options),
            "score_scale": "centipawns",
            "centipawn_scale": self.scale,
        }

    @property
    def num_nodes(self) -> int:
        """Nodes searched so far by all processes, as they count them."""
        return self._pool.num_nodes

    @property
    def num_restarts(self) -> int:
        """Engines that died or hung and were replaced."""
        return self._pool.num_restarts

    def analyse(self, states: Sequence[Any], horizon: int, *, move_values: bool = False) -> list[Line]:
        """One line for each state, in order, each searched from an empty hash table (see ``Oracle.analyse``)."""
        return analysed_by_run(self, states, horizon, move_values=move_values)

    def run(
        self, blocks: Iterable[Sequence[Generator[Any, Line, T]] | None], horizon: int, *, move_values: bool = False
    ) -> Iterator[list[T]]:
        """Drive blocks of tasks, one on each process (see ``Oracle.run``)."""
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        if self._num_valued is not None and not move_values:
            raise ValueError(f"multipv={self._num_valued} is for move values: add --move-values, or remove it")
        return self._pool.run(
            None if block is None else [self._searches(task, horizon, move_values) for task in block]
            for block in blocks
        )

    def close(self) -> None:
        """Kill the engines; safe to call twice."""
        self._finalizer()

    def _searches(
        self, task: Generator[Any, Line, T], horizon: int, move_values: bool
    ) -> Generator[Search, SearchResult, T]:
        try:
            state = next(task)
            while True:
                line = yield from self._label(state, horizon, move_values)
                state = task.send(line)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _label(self, state: Any, horizon: int, move_values: bool) -> Generator[Search, SearchResult, Line]:
        root, past = self.game.history(state) if self._with_past else (self.game.format(state), ())
        moves: list[int] = []
        scores: list[str | None] = []
        at = state
        ended = False
        first: SearchResult | None = None
        while len(moves) < horizon and not ended:
            num_wanted = 1 if self.line == "searched" else horizon - len(moves)
            # The moves, not the position after them: it saves a text, and the engine sees repetitions of the line.
            number = self._num_valued and (self._num_valued if move_values and not moves else 1)
            text = self._text(root, [*past, *moves])
            result, found, after, ended = yield from self._search(text, at, num_wanted, num_variations=number)
            first = first or result
            if result.error is not None:
                if not moves:
                    return Line((), error=result.error)
                break  # what was found so far stands; the rest of the line is unlabelled
            scores += [None] * (len(moves) - len(scores)) + [result.score]
            moves += found
            at = after
        assert first is not None
        by_move: dict[int, str] = {}
        if move_values and self._num_valued is not None:
            texts = first.by_move or {first.move: first.score or ""}
            by_move = {
                m: texts[self.game.moves[m]] for m in self.game.legal(state).tolist() if texts.get(self.game.moves[m])
            }
            if not by_move:
                return Line((), error="the engine gives no move a score")
        elif move_values:
            for move in self.game.legal(state).tolist():
                asked = self._text(root, past)
                result, _, _, _ = yield from self._search(asked, state, 1, self.game.moves[move])
                if result.error is not None or result.score is None:
                    return Line((), error=result.error or f"the engine gives {self.game.moves[move]} no score")
                by_move[move] = result.score
        return Line(tuple(moves), tuple(scores), ended, by_move, None, first.num_nodes, first.line)

    def _text(self, root: str, moves: Sequence[int]) -> str:
        """A position as the protocol writes it: another one's text and the moves from there."""
        return " ".join([root, *(["moves"] if moves else []), *(self.game.moves[move] for move in moves)])

    def _search(
        self, text: str, state: Any, num_moves: int, only: str | None = None, *, num_variations: int | None = None
    ) -> Generator[Search, SearchResult, tuple[SearchResult, list[int], Any, bool]]:
        """A search whose move is legal (tried again where it is not), and its line as far as that is legal.

        Args:
            text: The position as the protocol writes it.
            state: The same.
            num_moves: Most moves of the line.
            only: The one move to consider.
            num_variations: Moves that get a score; None leaves it to the engine's options.

        Returns:
            The result; the moves of its line; the state after them; whether the game ends there.
        """
        answers = []
        for _ in range(min(MAX_ILLEGAL, self._attempts)):
            result = yield Search(text, only, num_variations)
            if result.error is not None:
                return SearchResult(error=f"{text!r}: {result.error}"), [], state, False
            if only in (None, result.move):
                moves, after, ended = self._follow(state, result.line[:num_moves])
                if moves:
                    return result, moves, after, ended
            answers.append(result.move or "nothing")
        plural = "illegal moves" if len(answers) > 1 else "the illegal move"
        error = f"{text!r}: the engine answers {plural}: {', '.join(answers)}"
        return SearchResult(error=error), [], state, False

    def _follow(self, state: Any, line: Sequence[str]) -> tuple[list[int], Any, bool]:
        """Play a line as far as it is legal and the game runs."""
        moves: list[int] = []
        for text in line:
            try:
                move = self.game.moves.index(text)
                state = self.game.play(state, move)
            except ValueError:  # no move at all, or an illegal one
                break
            moves.append(move)
            if self.game.outcome(state) is not None:
                return moves, state, True
        return moves, state, False


def find_engine(name: str) -> str:
    """Path of an engine's program: a path as it is, a name as found in PATH and where distributions put games.

    Raises:
        EngineError: there is none; the message says how to get it.
    """
    if os.sep in name:
        path = Path(name).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
        what = "is not a program that can be run" if path.exists() else "no such file"
        raise EngineError(f"engine {name}: {what}; give the path of an engine's program (chmod +x makes a file one)")
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *MORE_FOLDERS])
    found = shutil.which(name, path=folders)
    if found is None:
        raise EngineError(
            f"engine {name!r} not found in PATH, {', '.join(MORE_FOLDERS)}; install it (Debian, Ubuntu: "
            f"apt install {name}) or give its path instead of its name, e.g. /path/to/{name}"
        )
    return found


def _engine_options(engine: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Options for the engine itself, as text.

    Raises:
        ValueError: a misspelling of one of ours, or one option twice.
    """
    given: dict[str, str] = {}
    names: dict[str, str] = {}
    for key, value in options.items():
        near = difflib.get_close_matches(key, OWN_OPTIONS, n=1, cutoff=0.75)
        if (
            near and key.islower() and key not in ENGINE_NAMES
        ):  # engines begin theirs with a capital, nearly all of them
            raise ValueError(f"engine {engine!r}: no option {key!r}. Did you mean: {near[0]!r}?")
        if key.lower() in names:
            raise ValueError(f"engine {engine!r}: {names[key.lower()]} and {key} are one option; give it once")
        names[key.lower()] = key
        given[str(key)] = str(value)
    return given


def _one_of(
    given: dict[str, str], spelt: dict[str, str], own: str, value: Any, engines: str, default: int
) -> tuple[str, Any]:
    """Name and value of an option that has a name of ours and one of the engine's; taken out of ``given``.

    Raises:
        ValueError: it is given by both names.
    """
    same = {engines.lower(), "hash"} if own == "hash_mb" else {engines.lower()}
    keys = [key for key in given if key.lower() in same]
    if keys and (value is not None or len(keys) > 1):
        raise ValueError(f"{' and '.join([own] * (value is not None) + keys)} are one option; give one of them")
    name = keys[0] if keys else own
    spelt.update(dict.fromkeys((engines, "Hash") if own == "hash_mb" else (engines,), name))
    if keys:
        return name, given.pop(name)
    return name, default if value is None else value


def _number(name: str, value: float | str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a number above 0, got {value!r}")
    return number


def _at_least_1(name: str, value: int | str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def program_as_oracle(name: str, query: str, game: Game[Any]) -> tuple[str, dict[str, Any]] | None:
    """The oracle and options that stand for a name which is not an oracle's: an engine's program.

    Args:
        name: A path, or a name in PATH or where distributions put games.
        query: The rest of the spelling, for the message.
        game: What is to be played.

    Returns:
        None where the name cannot be an engine's.

    Raises:
        RegistryError: no program has this name.
    """
    if "/" in name:
        return "uci", {"engine": name}  # what is wrong with a path is said where it is opened
    if not name or game.protocol == "none":
        return None
    try:
        find_engine(name)
    except EngineError as missing:
        try:
            registry.load("oracles", name)
        except RegistryError as error:
            raise RegistryError(
                f"{error}. Nor is there an engine's program {name!r} in PATH or where games lie: install it, or give "
                f"its path: '/path/to/{name}?{query or 'nodes=2000'}'"
            ) from missing
    return "uci", {"engine": name}

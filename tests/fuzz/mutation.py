"""Mutation of valid examples, and the run of a target on its mutants: only declared errors, each within ten
seconds of the processor."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
"""What once broke a reader, by the target's name."""
LIMIT_S = 10.0
"""Processor time, because a busy machine makes a reader slow without making it hang."""
WAIT_S = 120.0
"""By the clock, for a reader that waits."""
_WORDS = (
    "0 -1 1 9223372036854775808 1e999 -1e308 nan inf 1e-320 null true ~ [] {} [[ ]] }} : ; , # \" ' \\ & * ! % | > @ = "
    "${x} ${oc.env:HOME} !!python/name:os.system &a *a <<: ../.. /dev/zero - --- 0000 e2e4 a7a8q 7g7f P*5e startpos "
    "\u0663 \uff11 \u5c06 \u00e9 \u202e \ud800 \0 \x1b[2J \r \t \x85 \u2028 k K / "
)
WORDS = _WORDS.split(" ")
LONG = ("x" * 3000, "9" * 5000, "[" * 3000, "(" * 3000, '"' * 999, " " * 3000, "-" * 3000, "a " * 900, "\n" * 900)


@dataclass(frozen=True)
class Target:
    """A reader of texts from outside.

    Args:
        name: Of the format.
        examples: Valid texts.
        read: Reads a text, and uses what it was read to.
        declared: Errors that may come out of ``read``.
    """

    name: str
    examples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    declared: tuple[type[Exception], ...]


class TooSlow(BaseException):
    """Raised in the middle of a reader that has had its time."""


@contextmanager
def limited(seconds: float = LIMIT_S) -> Iterator[None]:
    """Inside, ``TooSlow`` is raised after some seconds of processor time, or two minutes; in the main thread alone."""

    def stop(*_: Any) -> None:
        raise TooSlow

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, WAIT_S))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def problem(target: Target, data: bytes) -> str | None:
    """What is wrong with how a text is read, or None."""
    start = time.monotonic()
    try:
        with limited():
            target.read(data)
    except target.declared as error:
        if len(str(error)) > 50_000:
            return f"a message of {len(str(error))} characters"
    except TooSlow:
        return f"hung: not ready after {LIMIT_S:.0f} s of the processor, or {WAIT_S:.0f} s"
    except RecursionError as error:
        return f"RecursionError: {error}"
    except Exception as error:
        said = str(error).partition("\n")[0][:300]
        return f"{type(error).__name__} after {time.monotonic() - start:.1f} s: {said}"
    return None


def mutant(examples: tuple[bytes, ...], generator: random.Random) -> bytes:
    """One of the examples with one to four changes of bytes, words or lines."""
    data = bytearray(generator.choice(examples))
    for _ in range(generator.choice((1, 1, 1, 2, 3, 4))):
        kind, at = generator.random(), generator.randrange(len(data) + 1)
        end = min(len(data), at + generator.choice((1, 1, 2, 5, 20, 200)))
        if kind < 0.15 and data:
            data[at % len(data)] ^= 1 << generator.randrange(8)
        elif kind < 0.25:
            data[at:at] = generator.randbytes(generator.choice((1, 1, 2, 8)))
        elif kind < 0.35:
            del data[at:end]
        elif kind < 0.45:
            data[at:at] = data[at:end] * generator.choice((1, 1, 2, 50))
        elif kind < 0.55:
            other = generator.choice(examples)
            begin = generator.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + generator.choice((1, 8, 40, 400))]
        elif kind < 0.58:
            data[at:at] = generator.choice(LONG).encode()
        else:
            lines = kind > 0.85
            parts = bytes(data).split(b"\n" if lines else b" ")
            i, j = generator.randrange(len(parts)), generator.randrange(len(parts))
            action = generator.random()
            if action < 0.3:
                parts[i], parts[j] = parts[j], parts[i]
            elif action < 0.5:
                parts.insert(i, parts[j])
            elif action < 0.65:
                del parts[i]
            else:
                parts[i] = generator.choice(WORDS).encode("utf-8", "surrogatepass")
            data = bytearray((b"\n" if lines else b" ").join(parts))
    return bytes(data)


def corpus(target: Target) -> list[bytes]:
    """What once broke the target."""
    return [path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))]


def fuzz(
    target: Target, seed: int, trials: int, until: float = float("inf"), *, examples: bool = True
) -> tuple[int, list[tuple[bytes, str]]]:
    """Run a target on its examples and corpus, and on mutants of them.

    Args:
        target: What reads.
        seed: Of the mutants; the same seed, the same mutants.
        trials: Number of mutants.
        until: Value of ``time.monotonic()`` at which no further mutant is tried.
        examples: Whether to run it on the unchanged texts, too.

    Returns:
        The number of texts tried, and each that went wrong with what was.
    """
    generator = random.Random(f"{target.name} {seed}")
    pool = (*target.examples, *corpus(target))
    unchanged = pool if examples else ()
    wrong = [(data, what) for data in unchanged if (what := problem(target, data))]
    count = len(unchanged)
    for _ in range(trials):
        if time.monotonic() > until:
            break
        data = mutant(pool, generator)
        count += 1
        if what := problem(target, data):
            wrong.append((data, what))
    return count, wrong

"""A network of Leela Chess Zero that the user has, exported to ONNX, as a policy: ``leela:FILE.onnx``.

``lc0 leela2onnx --input=NET.pb.gz --output=NET.onnx`` writes the file. Names and shapes are that command's: input
``/input/planes`` [B, 112, 8, 8], outputs ``/output/policy`` [B, 1858] (logits), ``/output/wdl`` [B, 3] (probabilities
of win, draw and loss for the player to move) or ``/output/value`` [B, 1], and ``/output/mlh`` [B, 1] (plies left; may
be missing). onnxruntime computes it; the extra ``[lc0]`` installs that.

Axes: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from genpolicy.control import FREE, Control
from genpolicy.errors import CheckpointError
from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec
from genpolicy.policies.base import Decision, Policy, legal_of, legal_probabilities
from genpolicy.registry import load_game
from genpolicy_chess.leela_planes import NUM_MOVES, NUM_PLANES, leela_ids, planes

OPTIONS = (
    Option(
        "temperature",
        float,
        1.0,
        low=0.01,
        usual_high=10.0,
        help="divides the move logits; above 1 probabilities become more even",
        basic=True,
    ),
)
_INPUT, _POLICY, _WDL, _VALUE, _LEFT = "/input/planes", "/output/policy", "/output/wdl", "/output/value", "/output/mlh"
_WIDTHS = {_POLICY: NUM_MOVES, _WDL: 3, _VALUE: 1, _LEFT: 1}
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_TOLERANCE = 0.02  # of a value, and of the sum of three probabilities, in half precision
_BATCH = 64


class LeelaNetwork:
    """An ONNX file as ``lc0 leela2onnx`` writes it.

    Args:
        path: The file.

    Raises:
        CheckpointError: no such file, one that onnxruntime cannot read, or a network of another form.
        ValueError: onnxruntime is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise CheckpointError(f"{path}: no such file; write leela:FILE.onnx")
        if self.path.suffix != ".onnx":
            raise CheckpointError(
                f"{path}: not an ONNX file; convert Leela's own with lc0 leela2onnx --input={path} --output=FILE.onnx"
            )
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise ValueError(f"policy leela needs the module {error.name!r}: pip install 'genpolicy[lc0]'") from error
        try:
            self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has classes of its own for each kind of fault
            raise CheckpointError(
                f"{path}: onnxruntime {onnxruntime.__version__} cannot read it ({str(error).strip()[:300]}); "
                f"convert the network again with lc0 leela2onnx, or upgrade onnxruntime"
            ) from error
        given = {node.name: node for node in (*self._session.get_inputs(), *self._session.get_outputs())}
        self._check(given)
        self._type = _TYPES[given[_INPUT].type]
        fixed = given[_INPUT].shape[0]
        self.batch_size: int = fixed if isinstance(fixed, int) else _BATCH
        self._is_fixed = isinstance(fixed, int)
        self._outputs = [name for name in _WIDTHS if name in given]

    def _check(self, given: dict[str, Any]) -> None:
        """Refuse what does not have the names and shapes of the module's first lines."""
        inputs = [node.name for node in self._session.get_inputs()]
        form = f"expected input {_INPUT} and outputs {_POLICY} and {_WDL} or {_VALUE}, as lc0 leela2onnx names them"
        if inputs != [_INPUT] or _POLICY not in given or not ({_WDL, _VALUE} & given.keys()):
            raise CheckpointError(f"{self.path}: has inputs and outputs {', '.join(given)}; {form}")
        shape = list(given[_INPUT].shape)
        if shape[1:] != [NUM_PLANES, 8, 8] or given[_INPUT].type not in _TYPES:
            raise CheckpointError(
                f"{self.path}: {_INPUT} is {given[_INPUT].type} {shape}; expected floats [B, {NUM_PLANES}, 8, 8], "
                f"lc0's input format 1 (lc0 describenet tells a network's format)"
            )
        for name, width in _WIDTHS.items():
            if name in given and list(given[name].shape[1:]) != [width]:
                raise CheckpointError(f"{self.path}: {name} is {list(given[name].shape)}; expected [B, {width}]")

    def __call__(self, images: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        """Each output that there is, [B, width], of planes [B, 112, 8, 8]; B at most ``batch_size``.

        Raises:
            ValueError: one is not finite.
        """
        num = len(images)
        if self._is_fixed and num < self.batch_size:
            images = np.concatenate([images, np.zeros((self.batch_size - num, *images.shape[1:]), images.dtype)])
        found = self._session.run(self._outputs, {_INPUT: images.astype(self._type)})
        answers = {name: np.asarray(each, np.float64)[:num] for name, each in zip(self._outputs, found, strict=True)}
        for name, each in answers.items():
            if not np.isfinite(each).all():
                raise ValueError(f"{self.path}: {name} answers numbers that are not finite; convert the network again")
        return answers


class LeelaPolicy(Policy):
    """Plays the likeliest move of a Leela Chess Zero network; ``mcts:leela:FILE.onnx`` searches with it.

    ``Decision.policy`` is the softmax of the legal moves' logits, ``value`` the probability of a win minus that of a
    loss; a network with a value alone expects no draws. Stats: ``plies_left`` where the network has it.

    Args:
        network: The network.
        game: Chess.
        temperature: Divides the logits.
    """

    kind: ClassVar[str] = "leela"
    spelling: ClassVar[str] = "leela:FILE.onnx[?temperature=X]"

    def __init__(self, network: LeelaNetwork, game: Game[Any], *, temperature: float = 1.0) -> None:
        self.network, self.game, self.temperature = network, game, temperature
        self.batch_size = network.batch_size

    @property
    def label(self) -> str:
        """``leela:`` and the file's name."""
        return f"{self.kind}:{self.network.path.name}"

    def decide(self, states: Sequence[Any], *, control: Control = FREE) -> list[Decision]:
        """One decision for each position.

        Raises:
            ValueError: a position without legal moves or without an allowed one, or the network answers what cannot be
                probabilities or a value.
        """
        legal_moves = legal_of(self.game, states, control)
        decisions: list[Decision] = []
        for start in range(0, len(states), self.network.batch_size):
            control.check()
            rows = slice(start, start + self.network.batch_size)
            answers = self.network(planes(states[rows]))
            for i, (state, legal) in enumerate(zip(states[rows], legal_moves[rows], strict=True)):
                decisions.append(self._decision(state, legal, {name: each[i] for name, each in answers.items()}))
        return decisions

    def _decision(self, state: Any, legal: list[int], answer: dict[str, NDArray[np.float64]]) -> Decision:
        logits = answer[_POLICY][leela_ids(state, legal)]
        chances = legal_probabilities(np.array(legal), logits / self.temperature)
        move = max(legal, key=lambda each: chances[each])
        stats = {"network_calls": 1.0, "raw_legal": 1.0}
        if _LEFT in answer:
            stats["plies_left"] = max(0.0, float(answer[_LEFT][0]))
        decision = Decision(move, policy=chances, line=(move,), stats=stats, names=self.game.moves.texts)
        if _WDL not in answer:
            value = float(answer[_VALUE][0])
            if abs(value) > 1 + _TOLERANCE:
                raise ValueError(f"{self.network.path}: {_VALUE} answers {value}; expected a number from -1 to 1")
            value = min(1.0, max(-1.0, value))
            return replace(decision, value=value, wdl=((1 + value) / 2, 0.0, (1 - value) / 2))
        wdl = answer[_WDL]
        if not (wdl.min() >= -_TOLERANCE and abs(wdl.sum() - 1) <= _TOLERANCE):
            raise ValueError(f"{self.network.path}: {_WDL} answers {wdl.tolist()}; expected probabilities, sum 1")
        win, draw, loss = (float(each) for each in np.clip(wdl, 0, None) / np.clip(wdl, 0, None).sum())
        return replace(decision, value=win - loss, wdl=(win, draw, loss))

    @classmethod
    def options(cls, spec: PolicySpec | None = None) -> tuple[Option, ...]:
        """See ``Policy.options``."""
        del spec
        return OPTIONS

    def with_options(self, **changed: Any) -> LeelaPolicy:
        """The same network with another temperature.

        Raises:
            ValueError: an option that it does not take.
        """
        changed = self.read_changes(changed)
        return LeelaPolicy(self.network, self.game, **{"temperature": self.temperature, **changed})

    @classmethod
    def from_spec(cls, argument: str, options: dict[str, Any]) -> LeelaPolicy:
        """``leela:FILE.onnx[?temperature=X]``; ``game`` may be left out.

        Raises:
            CheckpointError: as ``LeelaNetwork``.
            ValueError: no file, another game than chess, or onnxruntime is missing.
        """
        game = options.get("game") or "chess"
        game = load_game(game) if isinstance(game, str) else game
        if game.name != "chess":
            raise ValueError(f"policy leela plays chess, not {game.name}")
        if not argument:
            raise ValueError("policy leela needs a file: write leela:FILE.onnx (lc0 leela2onnx makes one)")
        return cls(LeelaNetwork(argument), game, temperature=options.get("temperature") or 1.0)

"""What the learners and policies over one denoising network share: windows and first-action marginals.

Axes: B batch, N tokens of a sequence, L tokens of a state, M moves of the vocabulary.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.control import FREE, Control
from genpolicy.data.records import Dataset
from genpolicy.data.windows import VIEWERS, WindowOptions, WindowSource
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.errors import ConfigError, require_one_of
from genpolicy.game import Game
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.embedding import index_buffer
from genpolicy.networks.shown_moves import without_drops
from genpolicy.policies import declared
from genpolicy.policies.base import Decision, Variation, legal_of, legal_probabilities
from genpolicy.policies.dream import Dream, OnStep, Recorder
from genpolicy.policies.first_action import FirstAction, Imagined
from genpolicy.policies.imagined import Candidates
from genpolicy.policies.learner import Learner
from genpolicy.policies.saved import WeightsPolicy
from genpolicy.sequence import Layout, Slot

FUTURES = ("labelled", "unrelated")


@dataclass
class NetworkLearnerConfig:
    """Options of every learner over one network: its view of the records and the network's shape."""

    viewer: str = "mover"
    """Whose side tokens are seen from: ``mover``, the player to move at the root of a window, or ``absolute``."""
    train_pad: bool = False
    """Whether PAD after a game's end is imagined and trained on."""
    redraw: bool = True
    """Whether, where several moves are best, the label is drawn anew each time a window is made."""
    augment: bool = False
    """Whether each window is seen through a symmetry of the game, drawn anew each time."""
    future: str = "labelled"
    """What is trained after the first move: ``labelled``, the record's own line; ``unrelated``, in training, that of
    another window drawn at random, so that the future says nothing of the move (Ye et al. 2025, Table 4, "random
    world")."""
    cache_dir: str | None = None
    """Folder of the cached token windows; None puts them beside the data set."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The network's shape."""

    def __post_init__(self) -> None:
        require_one_of("viewer", self.viewer, VIEWERS)
        require_one_of("future", self.future, FUTURES)

    def window_options(self, seed: int, *, training: bool) -> WindowOptions:
        """How windows show their records; labels are redrawn and windows turned in training only."""
        return WindowOptions(
            viewer=self.viewer,
            redraw=self.redraw and training,
            train_pad=self.train_pad,
            augment=self.augment and training,
            seed=seed,
            cache_dir=None if self.cache_dir is None else Path(self.cache_dir),
        )


def acting_layout(game: Game[Any], paradigm: str, horizon: int, **options: Any) -> Layout:
    """The layout, with arguments as in ``Layout``, of a learner whose policy plays by what it imagines.

    Raises:
        ConfigError: a paradigm or horizon that ``Layout`` refuses, or one that imagines no action.
    """
    layout = Layout(game, paradigm, horizon, **options)
    if all(slot.kind != "action" or slot.given for slot in layout.slots):
        raise ConfigError(f"learner.paradigm {paradigm!r} imagines no action, so nothing would be played")
    return layout


class NetworkLearner(Learner):
    """A learner whose weights are one denoising network over one layout, that of its windows."""

    policy_class: ClassVar[type[WeightsPolicy]]
    """What plays with the weights."""
    config: NetworkLearnerConfig
    network: DenoisingTransformer

    def __init__(
        self, game: Game[Any], config: NetworkLearnerConfig, layout: Layout, num_input_symbols: int | None = None
    ) -> None:
        if config.viewer != "mover" or not game.alternates:
            config = replace(config, network=without_drops(config.network, layout))
        super().__init__(game, config)
        self.layout = layout
        self.network = self.make_network(layout, num_input_symbols)
        self.admitted = index_buffer(layout.admitted)

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> DenoisingTransformer:
        """The weights, drawn anew; called once, while the learner is made."""
        return DenoisingTransformer(layout, self.config.network, num_input_symbols)

    @property
    def fingerprint(self) -> str:
        """The layout's."""
        return self.layout.fingerprint

    def flops_per_record(self) -> float | None:
        """Floating-point operations of one record's forward and backward pass through the blocks.

        6 operations a weight of the blocks and a token, and 12 N^2 W a layer for attention of N tokens at width W: two
        products of 2 N^2 W forward (queries by keys, weights by values), and twice that backward. The PaLM paper counts
        the same (Chowdhery et al. 2022, arXiv:2204.02311); Kaplan et al. 2020 (arXiv:2001.08361) count half of it for
        attention. An attention bias adds three times what it counts forward.
        """
        return self.flops_of(self.layout.length, self.layout.length**2)

    def flops_of(self, num_tokens: float, num_pairs: float) -> float:
        """The operations where so many tokens go through the blocks, and so many pairs of them attend."""
        weights = sum(p.numel() for p in self.network.trunk.blocks.parameters())
        shape = self.config.network
        attention = 12 * shape.num_layers * shape.width * num_pairs
        bias = 3 * self.network.trunk.bias.flops() * (num_pairs / self.layout.length**2)
        return float(6 * weights * num_tokens + attention + bias)

    def meaning(self) -> dict[str, Any]:
        """The side that tokens are seen from."""
        return {"viewer": self.config.viewer}

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As ``Learner.param_groups``; Muon gets the matrices outside embedding and head, of a bias those it names."""
        decayed, others = super().param_groups(weight_decay)
        trunk = self.network.trunk
        outer = (trunk.embedding, trunk.shown, trunk.bias, trunk.code, trunk.gates, self.network.head)
        kept = {id(p) for part in outer if part is not None for p in part.parameters()}
        hidden = {id(p) for p in trunk.bias.hidden_matrices()}
        muon = [p for p in decayed["params"] if p.ndim == 2 and id(p) not in kept - hidden]
        return [{**decayed, "muon": muon}, others]

    @property
    def window_layout(self) -> Layout:
        """The tokens of ``windows``: those of the network, unless ``loss`` makes them of others."""
        return self.layout

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """The labelled lines of a split as token windows; labels are redrawn and windows turned in training only."""
        from genpolicy.data.window_source import UnrelatedFutures, build_windows

        layout, training = self.window_layout, split == self.trained_split
        options = self.config.window_options(seed, training=training)
        source = build_windows(records, split, self.game, layout, options)
        if self.config.future == "labelled" or not training:
            return source
        later = np.arange(layout.length) > layout.first_action
        return UnrelatedFutures(source, later & ~layout.given, seed)

    def policy(self) -> WeightsPolicy:
        """A policy that plays with these weights (shared, not copied)."""
        return self.policy_class(self)

    def viewers(self, states: Sequence[Any]) -> NDArray[np.int64]:
        """[B] whose side each root is seen from."""
        if self.config.viewer == "absolute":
            return np.zeros(len(states), np.int64)
        return np.array([self.game.player(state) for state in states], np.int64)

    def roots(self, states: Sequence[Any], viewers: NDArray[np.int64]) -> Tensor:
        """[B, N] int64: the roots' tokens, everything imagined masked; on the CPU."""
        tokens = torch.full((len(states), self.layout.length), self.layout.mask, dtype=torch.int64)
        rows = self.layout.tokenizer.encode(states, viewers)
        tokens[:, : self.layout.state_length] = torch.from_numpy(rows.astype(np.int64))
        return tokens


class NetworkPolicy(WeightsPolicy):
    """A policy that imagines a future and plays its first action.

    ``Decision.policy`` is the marginal p(a_0 | s) of the first network call over the legal moves, whatever the sampler
    made of it afterwards. Stats: ``network_calls``; ``raw_legal``, 1 where the first action was legal without a legal
    mask (under the mask, which hides the drawn one: where the marginal's likeliest symbol was legal); ``legal_mass``,
    the marginal's probability on legal moves before the mask; ``ms``, wall time of the batch over its rows.

    Args:
        learner: Holds the weights, shared and not copied.
        legal_mask: Restrict the first action to legal moves. Without it the raw first action is ``line[0]`` (-1 where
            it is not a move); ``move`` is the same where that is legal, else the likeliest legal move of the marginal.
        options: Arguments of ``WeightsPolicy``.
    """

    declaration = declared.FIRST_ACTION
    dreams: ClassVar[bool] = True
    learner: NetworkLearner

    def __init__(self, learner: NetworkLearner, *, legal_mask: bool = True, **options: Any) -> None:
        super().__init__(learner, **options)
        self.layout, self.legal_mask = learner.layout, legal_mask

    def unmasked(self) -> WeightsPolicy | None:
        """The same without the legal mask; None where it has none."""
        return self.with_options(legal_mask=False) if self.legal_mask else None

    def own_options(self) -> dict[str, Any]:
        """The constructor's options that every network policy takes, as they are."""
        return {**super().own_options(), "legal_mask": self.legal_mask}

    def _imagined_slots(self) -> Sequence[Slot]:
        """The states, actions and values that a decision shows."""
        return self.layout.slots

    def _predict(self, tokens: Tensor, t: Tensor) -> TypedLogits:
        """The network's logits of x_0 for noised tokens [B, N] at times [B]."""
        return TypedLogits.of(self.learner.network(tokens, t))

    @property
    def num_dream_steps(self) -> int:
        """Steps of a dream."""
        return self.num_calls

    def _shown_layout(self) -> Layout:
        """The layout of a dream: the network's, or its first tokens where the rest is never imagined."""
        return self.layout

    @torch.no_grad()
    def dream(self, state: Any, on_step: OnStep | None = None, *, control: Control = FREE) -> Dream:
        """See ``Policy.dream``: a step for each network call of the sampler."""
        legal = legal_of(self.game, [state], control)
        seeds = self._seeds.draw([self.game.format(state)])
        viewer = int(self.learner.viewers([state])[0])
        recorder = Recorder(
            self.layout,
            self._shown_layout(),
            self.learner.admitted,
            legal=legal[0],
            viewer=viewer,
            num_steps=self.num_dream_steps,
            on_step=on_step,
        )
        with self._evaluating(control):
            decision = self._decide_batch([state], legal, seeds, recorder)[0]
        return Dream(state, viewer, recorder.layout, tuple(recorder.steps), decision)

    @abstractmethod
    def _imagine(
        self, tokens: Tensor, seeds: Sequence[int], first_action: FirstAction, recorder: Recorder | None
    ) -> Imagined:
        """Fill in a batch of roots.

        Args:
            tokens: [B, N] roots with everything imagined masked, on the policy's device; the first network call sees
                them as they are.
            seeds: One for each row's own draws.
            first_action: Masks each prediction.
            recorder: Records each step, of one position; None where the steps are not needed.
        """

    def _decide_batch(
        self, states: Sequence[Any], legal: list[list[int]], seeds: Sequence[int], recorder: Recorder | None = None
    ) -> list[Decision]:
        began = time.perf_counter()
        viewers = self.learner.viewers(states)
        seen = [self.game.moves.seen_by(np.array(row), int(viewer)) for row, viewer in zip(legal, viewers, strict=True)]
        allowed = torch.zeros(len(states), len(self.game.moves), dtype=torch.bool)
        for row, moves in enumerate(seen):
            allowed[row, torch.from_numpy(moves)] = True
        mask = allowed.to(self.device) if self.legal_mask else None
        first_action = FirstAction(self.layout, self.learner.admitted, mask)
        roots = self.learner.roots(states, viewers).to(self.device)
        imagined = self._imagine(roots, seeds, first_action, recorder)
        filled, first = imagined.tokens.cpu().numpy(), imagined.first_call
        marginal, best = first.marginal.cpu().numpy(), first.best.cpu().numpy()
        stats = {"network_calls": float(imagined.num_calls), "ms": 1e3 * (time.perf_counter() - began) / len(states)}
        decisions = [
            self._decision(state, legal[i], marginal[i, seen[i]], int(best[i]), filled[i], int(viewers[i]), stats)
            for i, state in enumerate(states)
        ]
        return self._completed(decisions, imagined, states, viewers)

    def _completed(
        self, decisions: list[Decision], imagined: Imagined, states: Sequence[Any], viewers: NDArray[np.int64]
    ) -> list[Decision]:
        """The decisions with what else was imagined of each row.

        Raises:
            ValueError: a search without a legal mask has no legal candidate in any of the positions.
        """
        found = imagined.searched
        if found is None:
            return decisions
        made = [self._varied(each, found, i, states[i], int(viewers[i])) for i, each in enumerate(decisions)]
        if all(each.value is None for each in made):  # only a move outside the candidates has no value
            raise ValueError(
                f"{self.label}: without a legal mask none of the {found.lines.shape[1]} candidates is legal in "
                f"{self.game.format(states[0])!r}, so the search decides nothing: take legal_mask=true, more "
                "candidates, or candidates=0 for no search"
            )
        return made

    def _varied(self, decision: Decision, found: Candidates, row: int, state: Any, viewer: int) -> Decision:
        """The decision of a state with the line, the boards and the worth of each of its candidates."""
        lines = self.game.moves.seen_by(found.lines[row].cpu().numpy(), viewer)
        boards, values = found.boards[row].cpu().numpy(), (2 * found.worth[row] - 1).tolist()
        found_moves = [k for k, line in enumerate(lines) if line[0] >= 0]
        variations = tuple(
            Variation(tuple(line), values[k], states=self._texts_of(boards[k], viewer, state, line))
            for k, line in zip(found_moves, lines[found_moves].tolist(), strict=True)
        )
        best, of_best = variations[0], boards[found_moves[0]].tolist()
        # Without a mask the best candidate may be illegal; then another move is played.
        worth_of = {each.line[0]: each.value for each in variations}
        return replace(
            decision,
            value=worth_of.get(decision.move),
            line=best.line,
            states=best.states,
            state_tokens=tuple(map(tuple, of_best)),
            variations=variations,
        )

    def _decision(
        self,
        state: Any,
        legal: list[int],
        scores: NDArray[np.float64],
        best: int,
        row: NDArray[np.int64],
        viewer: int,
        stats: dict[str, float],
    ) -> Decision:
        """One row's answer; ``scores`` are log-probabilities of the legal moves, ``best`` the likeliest symbol."""
        ids = np.array(legal, np.int64)
        # A network can put all its probability elsewhere; then nothing tells the legal moves apart.
        policy = legal_probabilities(ids, scores if scores.max() != -np.inf else np.zeros(len(ids)))
        line = tuple(self._move_of(int(row[s.start]), viewer) for s in self._imagined_slots() if s.kind == "action")
        move, raw_legal = line[0], float(self._move_of(best, viewer) in policy)
        if not self.legal_mask:
            raw_legal = float(move in policy)
        if move not in policy:
            move = max(policy, key=lambda each: (policy[each], -each))
        mass = float(min(1.0, np.exp(scores).sum()))
        boards = [row[s.start : s.stop] for s in self._imagined_slots() if s.kind == "state" and not s.given]
        states = self._texts_of(boards, viewer, state, line)
        stats = {**stats, "raw_legal": raw_legal, "legal_mass": mass}
        return Decision(
            move,
            policy=policy,
            line=line,
            states=states,
            state_tokens=tuple(tuple(board.tolist()) for board in boards),
            stats=stats,
            names=self.game.moves.texts,
        )

    def _move_of(self, symbol: int, viewer: int) -> int:
        """Absolute move of a symbol; -1 where it is not a move."""
        move = symbol - self.layout.move_offset
        if not 0 <= move < len(self.game.moves):
            return -1
        return int(self.game.moves.seen_by(np.array([move]), viewer)[0])

    def _texts_of(
        self, boards: Iterable[NDArray[np.int64]], viewer: int, state: Any, line: Sequence[int]
    ) -> tuple[str | None, ...]:
        """Texts of the states imagined after each move of a line from a state; None where tokens stand for no position.

        Where the tokens do not decode, of those that are what the rules make of the line.
        """
        tokenizer, texts = self.layout.tokenizer, list[str | None]()
        if tokenizer.decodes:
            return tuple(self._text_of(board, viewer) for board in boards)
        for board, move in zip(boards, line, strict=False):
            is_legal = state is not None and move in self.game.legal(state)
            state = self.game.play(state, move) if is_legal else None
            is_true = state is not None and np.array_equal(tokenizer.encode([state], [viewer])[0], board)
            texts.append(self.game.format(state) if is_true else None)
        return tuple(texts)

    def _text_of(self, tokens: NDArray[np.int64], viewer: int) -> str | None:
        """Text of an imagined state; None where the tokens stand for no position."""
        if tokens.max() >= self.layout.move_offset:
            return None
        try:
            return self.game.format(self.layout.tokenizer.decode(tokens, viewer))
        except ValueError:
            return None

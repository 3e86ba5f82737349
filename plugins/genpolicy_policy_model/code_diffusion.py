"""A diffusion policy whose imagined positions are codes of a learned autoencoder.

DiffuSearch (Ye et al. 2025, arXiv:2502.19805) imagines every token of every position. Here a position is told by the
codes by which an autoencoder of transitions tells it from the one before (``vq_autoencoder``): one token of each
codebook. Windows are the labelled lines of ``s-asa``; a code stands for the other side's answer, so that h own moves
and the h - 1 answers between them span 2h - 1 plies:

    s_0 | a_0 s_1 a_1 s_2 a_2 ...    a window
    s_0 | a_0     k_1     a_2 ...    what the network sees, k_1 = enc(s_0, a_0, s_2)

Axes: B batch, N tokens of a sequence, h own moves of a window, L tokens of a position, G codebooks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpolicy.control import FREE, Control
from genpolicy.data.windows import TokenBatch
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.game import Game
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.embedding import index_buffer
from genpolicy.policies.base import Decision
from genpolicy.policies.diffusion import DiffusionConfig, DiffusionLearner, DiffusionPolicy
from genpolicy.policies.dream import Dream, DreamStep, OnStep
from genpolicy.policies.first_action import Imagined
from genpolicy.policies.learner import Learner
from genpolicy.policies.tokens import NetworkLearner, acting_layout
from genpolicy.sequence import Layout, Slot
from genpolicy_policy_model.code_reading import CodeReader
from genpolicy_policy_model.declared import CODE_DIFFUSION
from genpolicy_policy_model.quantise import perplexity
from genpolicy_policy_model.vq import VQLearner, warn_of_collapse
from genpolicy_policy_model.vq_autoencoder import TransitionAutoencoder
from genpolicy_policy_model.vq_config import VQConfig
from genpolicy_policy_model.vq_squares import make_autoencoder

SHAPE = (
    "num_books",
    "num_codes",
    "code_width",
    "autoencoder",
    "token_width",
    "autoencoder_width",
    "autoencoder_layers",
)


@dataclass
class CodeDiffusionConfig(DiffusionConfig):
    """Options of ``CodeDiffusionLearner``: those of a diffusion policy, and the shape of the autoencoder.

    The latter are those of the policy of kind ``vq`` whose autoencoder ``init_from`` takes.
    """

    paradigm: str = "s-aka"
    """``s-aka`` alone."""
    horizon: int = 4
    """Own moves that are imagined, with the answers between them: 2 ``horizon`` - 1 plies of a line."""
    viewer: str = "mover"
    """``mover`` alone: codes are of the transitions between the positions of one player."""
    num_books: int = 1
    num_codes: int = 16
    code_width: int = 16
    autoencoder: str = "vector"
    token_width: int = 16
    autoencoder_width: int = 256
    autoencoder_layers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, only in (("paradigm", "s-aka"), ("viewer", "mover")):
            if getattr(self, name) != only:
                raise ConfigError(f"learner.{name} of code_diffusion is {only!r}, got {getattr(self, name)!r}")
        self.shape()

    def shape(self) -> VQConfig:
        """The autoencoder's options; a ``ConfigError`` names one that it cannot have."""
        return VQConfig(**{name: getattr(self, name) for name in SHAPE})


class CodedTransformer(DenoisingTransformer):
    """A denoising transformer, and beside it the frozen autoencoder that makes and reads its codes."""

    def __init__(
        self, layout: Layout, config: NetworkConfig, num_input_symbols: int | None, autoencoder: TransitionAutoencoder
    ) -> None:
        super().__init__(layout, config, num_input_symbols)
        self.autoencoder = autoencoder.requires_grad_(False)


class CodeDiffusionLearner(DiffusionLearner):
    """Trains a network to restore noised futures of moves and codes.

    Args:
        game: The game; its sides take turns.
        config: Its options.

    Raises:
        ConfigError: a player may move twice in the game or chance decides, or as ``DiffusionLearner``.
    """

    Config: ClassVar[type[Any]] = CodeDiffusionConfig
    config: CodeDiffusionConfig
    network: CodedTransformer

    def __init__(self, game: Game[Any], config: CodeDiffusionConfig) -> None:
        if game.has_chance or not game.alternates:
            raise ConfigError(
                f"learner.kind=code_diffusion: in {game.spec!r} a player may move twice or chance decides, and a code "
                "stands for the reply to one move; use learner.kind=diffusion"
            )
        super().__init__(game, config)
        lines, plies = self.window_layout, range(0, 2 * config.horizon - 1)
        states = [np.arange(s.start, s.stop) for ply in plies if (s := lines.slot("state", ply)) is not None]
        actions = [s.start for ply in plies[::2] if (s := lines.slot("action", ply)) is not None]
        none = np.zeros((0, lines.state_length), np.int64)
        self.own_states, self.own_actions = index_buffer(np.stack(states[::2])), index_buffer(np.array(actions))
        self.between = index_buffer(np.stack(states[1::2]) if len(states) > 1 else none)

    @classmethod
    def layout_of(cls, game: Game[Any], config: Any) -> Layout:
        """Moves and codes."""
        books = {"num_books": config.num_books, "num_codes": config.num_codes}
        return acting_layout(game, config.paradigm, config.horizon, admit_pad=config.train_pad, **books)

    @functools.cached_property
    def window_layout(self) -> Layout:
        """The labelled lines, position by position."""
        return Layout(self.game, "s-asa", 2 * self.config.horizon - 1)

    def make_network(self, layout: Layout, num_input_symbols: int | None) -> CodedTransformer:
        """The weights, drawn anew."""
        autoencoder = make_autoencoder(Layout(self.game, "s-a", 1), self.config.shape())
        return CodedTransformer(layout, self.config.network, num_input_symbols, autoencoder)

    def take_weights(self, source: Learner) -> None:
        """The autoencoder of a ``vq`` policy, or everything from a policy of this kind.

        Raises:
            CheckpointError: another learner, or an autoencoder of another game, shape or codebook; all differences are
                named.
        """
        if isinstance(source, CodeDiffusionLearner):
            super().take_weights(source)
            return
        if not isinstance(source, VQLearner):
            raise CheckpointError(
                f"a {type(source).__name__} has no autoencoder of transitions; init_from takes a policy of kind vq or "
                "code_diffusion"
            )
        ours = Layout(self.game, "s-a", 1).fingerprint
        if source.fingerprint != ours:
            raise CheckpointError(
                f"its autoencoder reads tokens of {source.game.spec!r} (layout {source.fingerprint}), this learner "
                f"those of {self.game.spec!r} (layout {ours}); train a vq policy on this game"
            )
        theirs = {name: getattr(source.config, name) for name in SHAPE}
        if self.config.autoencoder == theirs["autoencoder"] == "squares":
            del theirs["token_width"]  # of vectors alone
        differing = [f"learner.{name}={its}" for name, its in theirs.items() if its != getattr(self.config, name)]
        if differing:
            raise CheckpointError(f"its autoencoder has another shape: set {', '.join(differing)}")
        if source.config.span != 1:
            raise CheckpointError(
                f"its codes stand for what follows {source.config.span} own moves (learner.span); train a vq policy "
                "with span=1"
            )
        self.network.autoencoder.load_state_dict(source.network.autoencoder.state_dict())
        warn_of_collapse(self.network.autoencoder.codebooks)

    def flops_per_record(self) -> float | None:
        """As of every network over tokens, and the encoder's forward pass for each code."""
        autoencoder, network = self.network.autoencoder, super().flops_per_record() or 0.0
        return network + autoencoder.flops_per_code() * len(self.between)

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """As of ``DiffusionLearner``, of ``coded`` windows."""
        return super().loss(self.coded(batch), generator)

    @torch.no_grad()
    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """[B] bound on -log p(moves and codes | position) in nats, as of ``DiffusionLearner``."""
        return super().elbo(self.coded(batch), generator)

    @torch.no_grad()
    def metrics(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """``whole``: share of the windows' next positions rebuilt in every token; ``perplexity``: of their codes, in
        the worst book."""
        states, moves, after, known = self._transitions(batch)
        rebuilt = self.network.autoencoder(states[known], moves[known], after[known])
        in_use = perplexity(rebuilt.codes, self.config.num_codes)
        return {"whole": rebuilt.whole.float().mean(), "perplexity": in_use.min()}

    def _transitions(self, batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Own positions [B, h - 1, L], own moves there [B, h - 1], the own positions after them [B, h - 1, L], and
        [B, h - 1] where all three are known. Where the own move ended the game, the position in which it ended."""
        lines = self.window_layout
        own, moves = batch.tokens[:, self.own_states], batch.tokens[:, self.own_actions[:-1]]
        states, answered, moved = own[:, :-1], own[:, 1:], batch.tokens[:, self.between]
        after = torch.where((answered == lines.pad).all(-1, keepdim=True), moved, answered)
        known = (torch.maximum(states, after) < lines.move_offset).all(-1) & (moves < lines.value_offset)
        return states, moves - lines.move_offset, after, known

    @torch.no_grad()
    def coded(self, batch: TokenBatch) -> TokenBatch:
        """Windows of ``window_layout`` as moves and codes.

        Raises:
            ConfigError: the autoencoder was never trained.
        """
        layout, lines, autoencoder = self.layout, self.window_layout, self.network.autoencoder
        if not bool(autoencoder.codebooks.counts.any()):
            raise ConfigError(
                "learner.kind=code_diffusion: its autoencoder was never trained; set init_from=FOLDER of a policy of "
                "kind vq for the same game"
            )
        rows, device = len(batch), batch.tokens.device
        states, moves, after, known = self._transitions(batch)
        codes = torch.full((*known.shape, layout.num_books), layout.mask, device=device)
        codes[(after == lines.pad).all(-1)] = layout.pad
        first = layout.code_offset + layout.num_codes * torch.arange(layout.num_books, device=device)
        codes[known] = first + autoencoder.codes(states[known], moves[known], after[known])
        actions = batch.tokens[:, self.own_actions]
        actions = torch.where(actions == lines.pad, layout.pad, actions)
        actions = torch.where(actions == lines.mask, layout.mask, actions)
        # Of each own move but the first the code before it.
        later = torch.cat([codes, actions[:, 1:, None]], dim=2).flatten(1)
        tokens = torch.cat([batch.tokens[:, : layout.state_length], actions[:, :1], later], dim=1)
        given = torch.from_numpy(layout.given).to(device).expand(rows, -1)
        target = ~given & (tokens != layout.mask)
        if not self.config.train_pad:
            target &= tokens != layout.pad
        return TokenBatch(tokens, given.clone(), target, batch.indices)


class CodeDiffusionPolicy(DiffusionPolicy):
    """Imagines learned codes instead of positions and plays the first action.

    Args:
        learner: Holds the weights and the autoencoder.
        decode: Whether decisions and dreams show the positions that codes stand for; without it, the first move alone.
        options: Arguments of ``DiffusionPolicy``.
    """

    kind: ClassVar[str] = "code_diffusion"
    declaration = CODE_DIFFUSION
    learner_class: ClassVar[type[NetworkLearner]] = CodeDiffusionLearner
    learner: CodeDiffusionLearner

    def __init__(self, learner: CodeDiffusionLearner, *, decode: bool = True, **options: Any) -> None:
        super().__init__(learner, **options)
        self.decode = bool(decode)
        self.reader = CodeReader(self.game, self.layout.over(self.game, self._plies), learner.network.autoencoder)

    def own_options(self) -> dict[str, Any]:
        """The constructor's options that every network policy takes, as they are, and ``decode``."""
        return {**super().own_options(), "decode": self.decode}

    def dream(self, state: Any, on_step: OnStep | None = None, *, control: Control = FREE) -> Dream:
        """See ``Policy.dream``: a step for each network call, its codes decoded."""
        if not self.decode:
            return super().dream(state, on_step, control=control)
        steps: list[DreamStep] = []

        def note(step: DreamStep) -> None:
            steps.append(self.reader.step(step, state))
            if on_step is not None:
                on_step(steps[-1])

        dream = super().dream(state, note, control=control)
        return dataclasses.replace(dream, layout=self.reader.lines, steps=tuple(steps))

    def _imagined_slots(self) -> Sequence[Slot]:
        return [slot for slot in super()._imagined_slots() if slot.start == self.layout.first_action]

    def _completed(
        self, decisions: list[Decision], imagined: Imagined, states: Sequence[Any], viewers: NDArray[np.int64]
    ) -> list[Decision]:
        """The decisions with lines and positions read from the codes."""
        decisions = super()._completed(decisions, imagined, states, viewers)
        if not self.decode:
            return decisions
        rows, boards = imagined.tokens.cpu().numpy(), self.reader.boards(imagined.tokens)
        read = [self.reader.read(*each) for each in zip(rows, boards, states, viewers.tolist(), strict=True)]
        return [self._told(*each) for each in zip(decisions, read, states, viewers.tolist(), strict=True)]

    def _told(self, decision: Decision, row: NDArray[np.int64], state: Any, viewer: int) -> Decision:
        """A decision with the line and the positions of a row of moves and positions."""
        slots = [slot for slot in self.reader.lines.slots if not slot.given]
        line = tuple(self._move_of(int(row[slot.start]), viewer) for slot in slots if slot.kind == "action")
        boards = [row[slot.start : slot.stop] for slot in slots if slot.kind == "state"]
        return dataclasses.replace(decision, line=line, states=self._texts_of(boards, viewer, state, line))


CodeDiffusionLearner.policy_class = CodeDiffusionPolicy

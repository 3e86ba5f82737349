"""The learner of a model with codes: an autoencoder of transitions, and a model that tells its codes.

Ozair et al. 2021 (arXiv:2106.04615) train the two one after the other; here both begin together, and from ``settle`` on
the autoencoder is left as it is. The model is unrolled along K own moves a and the codes k of what followed each:

    L = sum_t w_t (CE(policy_t) + c_v CE(value_t)) + (1/K) sum_t (c_k CE(code_t) + c_v CE(worth_t) + c_r CE(reward_t) +
        c_e BCE(end_t)),    w_0 = 1, w_t = 1/K

where worth_t, read after the move and before the code, is learned from reward_t + value_(t+1) or the position's label
(``VQConfig.worth``), and with the gradient of a latent halved in front of every move, as in MuZero.

With ``side: both`` the moves are those of both players, and a code is what chance made of a move; a move after which
nothing is thrown has none. Two heads more say whether chance comes next and whose turn it is, and worth_t is learned
from reward_t - value_(t+1) where the turn passes.

Axes: B batch, K codes along a window, L tokens of a position, M moves of the vocabulary, G codebooks.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.chance import probabilities
from genpolicy.data.records import Dataset, Record
from genpolicy.data.windows import WindowSource
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy_policy_model.episodes import EpisodeBatch
from genpolicy_policy_model.learner import ModelLearner
from genpolicy_policy_model.move_codes import OwnCodes, own_codes
from genpolicy_policy_model.muzero import by_move, halved, weighted
from genpolicy_policy_model.quantise import Codebooks, in_use, perplexity
from genpolicy_policy_model.vq_autoencoder import Rebuilt
from genpolicy_policy_model.vq_config import VQConfig
from genpolicy_policy_model.vq_network import VQNetwork

if TYPE_CHECKING:
    from genpolicy_policy_model.vq_policy import VQPolicy

_log = logging.getLogger(__name__)
LOOKED_AT = 256
"""Windows that are asked whether they have labels, at most."""
COUNTED = 4096
"""Windows whose transitions are counted, at most, until there are as many as codes."""
MEASURED_TOGETHER = 1024
"""Transitions that are rebuilt in one call."""
LEAST_PERPLEXITY, LEAST_USE = 2.0, 0.75
"""Codes in use (perplexity) below which a codebook has collapsed; of two or fewer codes, this part of them."""


class VQLearner(ModelLearner):
    """A learned model whose other side, or whose chance, is told by codes.

    Args:
        game: The game; its sides take turns, or chance decides something.
        config: Options.

    Raises:
        ConfigError: a player may move twice in the game, or ``side`` is not what a game with or without chance takes.
    """

    Config: ClassVar[type[Any]] = VQConfig
    knows_chance: ClassVar[bool] = True
    config: VQConfig
    network: VQNetwork

    def __init__(self, game: Game[Any], config: VQConfig) -> None:
        if game.has_chance and config.side != "both":
            raise ConfigError(
                f"learner.side={config.side}: chance decides in {game.spec!r}, and a code stands for what is thrown, "
                "not for the other side's reply; set learner.side=both and learner.source=games"
            )
        if not game.has_chance and config.side == "both":
            raise ConfigError(
                f"learner.side=both: codes then stand for what chance decides, and {game.spec!r} has no chance; set "
                "learner.side=own"
            )
        if not (game.alternates or game.has_chance):
            raise ConfigError(
                f"learner.kind=vq: in {game.spec!r} a player may move twice, and a code stands for the reply to one "
                "move; search the rules (mcts:FOLDER of policy_value)"
            )
        super().__init__(game, config)
        self.network = VQNetwork(self.layout, config)
        self._settled = False

    @property
    def hidden_layers(self) -> tuple[nn.Module, ...]:
        """Those of representation and dynamics; AdamW moves the autoencoders."""
        network = self.network
        parts = (network.trunk.blocks, network.dynamics, network.answered, network.planned)
        return tuple(part for part in parts if part is not None)

    def num_moves(self, unroll: int) -> int:
        """``span`` moves for each code."""
        return unroll * self.config.span

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """As ``ModelLearner.windows``.

        Raises:
            ConfigError: besides, ``worth=label`` without the records of the other player's positions, where it trains.
        """
        windows = super().windows(records, split, seed=seed)
        # Walks soon leave a small split that is measured, so that one says nothing of what the data set values.
        if self.config.worth == "label" and split == self.trained_split:
            batch = windows.batch(np.arange(0, len(windows), -(-len(windows) // LOOKED_AT)), 0)
            assert isinstance(batch, EpisodeBatch)
            if not bool((batch.live[:, 1:] & ~batch.worth.isnan()).any()):
                raise ConfigError(
                    f"learner.worth=label: split {split!r} of {records.label} does not value the positions in which "
                    "the other player moves; set learner.worth=played"
                )
        if split == self.trained_split:
            self._warn_of_spare_codes(windows, records.label)
        return windows

    def _warn_of_spare_codes(self, windows: WindowSource, label: str) -> None:
        """Log a warning if a codebook has more codes than there are transitions that they could tell apart."""
        num_codes, looked_at = self.config.num_codes, np.random.default_rng(0).permutation(len(windows))[:COUNTED]
        if num_codes > COUNTED // 4 and len(looked_at) < len(windows):
            return  # too few to tell
        found = set[bytes]()
        for first in range(0, len(looked_at), LOOKED_AT):
            batch = windows.batch(looked_at[first : first + LOOKED_AT], 0)
            assert isinstance(batch, EpisodeBatch)
            batch = every(batch, self.config.span)
            known = self._coded(batch)
            rows = (batch.states[:, :-1][known], batch.moves[known][:, None], batch.states[:, 1:][known])
            found |= {row.tobytes() for row in torch.cat(rows, dim=1).numpy()}
            if len(found) >= num_codes:
                return
        _log.warning(
            "learner.num_codes=%s, but %s windows of %s have %s distinct transitions, which need no more codes than "
            "that: lower learner.num_codes, or take more records",
            *(num_codes, len(looked_at), label, len(found)),
        )

    def at(self, progress: float) -> None:
        """From ``settle`` on the autoencoder stays as it is; a codebook that has collapsed by then is named."""
        settled = progress >= self.config.settle
        if settled and not self._settled:
            warn_of_collapse(self.network.autoencoder.codebooks)
            if self.network.move_codes is not None:
                warn_of_collapse(self.network.move_codes.codebooks)
        self._settled = settled

    def loss(self, batch: EpisodeBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the model, and that of the autoencoder, in training until it is settled. Metrics: their parts."""
        batch = every(batch, self.config.span)
        coded, rebuilt = self._rebuilt(batch, learns=self.training and not self._settled, generator=generator)
        shape = (*batch.moves.shape, self.network.shape[0])
        # What follows no move of a game, or is not known, has codes without a meaning, as its moves are random.
        high = self.network.shape[1]
        codes = torch.randint(high, shape, generator=generator, device=batch.moves.device)
        codes[coded] = rebuilt.codes
        own = self._own_codes(batch, generator)
        loss, parts = self._model_loss(batch, codes, coded, own)
        parts["rebuilt"] = rebuilt.losses.mean() if len(rebuilt.losses) else loss.new_zeros(())
        if own is not None:
            parts["moves"] = own.losses.mean() if len(own.losses) else loss.new_zeros(())
        if not (self._settled and self.training):  # what is measured has the same parts throughout
            loss = loss + parts["rebuilt"] + parts.get("moves", 0.0)
        return loss, {name: part.detach() for name, part in parts.items()}

    def _rebuilt(self, batch: EpisodeBatch, *, learns: bool, generator: torch.Generator) -> tuple[Tensor, Rebuilt]:
        """[B, K] which transitions are known and have codes, and what the autoencoder makes of them."""
        autoencoder, known = self.network.autoencoder, self._coded(batch)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._settled):
            rebuilt: Rebuilt = autoencoder(batch.states[:, :-1][known], batch.moves[known], batch.states[:, 1:][known])
        if learns:
            autoencoder.codebooks.update(rebuilt.vectors, rebuilt.codes, generator)
        return known, rebuilt

    def _coded(self, batch: EpisodeBatch) -> Tensor:
        """[B, K] which transitions are known and have codes."""
        known = transitions(batch, self.layout.mask)
        return known & batch.chance if self.config.side == "both" else known

    def _own_codes(self, batch: EpisodeBatch, generator: torch.Generator) -> OwnCodes | None:
        """Own moves as codes; None where a search chooses among moves everywhere."""
        if self.network.move_codes is None:
            return None
        known, learns = transitions(batch, self.layout.mask), self.training and not self._settled
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._settled):
            return own_codes(
                self.network.move_codes, batch.states, batch.moves, batch.policy, known, generator, learns=learns
            )

    def _model_loss(
        self, batch: EpisodeBatch, codes: Tensor, coded: Tensor, own: OwnCodes | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        c, network, num = self.config, self.network, batch.moves.shape[1]
        known = transitions(batch, self.layout.mask)
        latent = network.represent(batch.states[:, 0])
        before, after = [latent], []
        for k in range(num):
            if own is None or network.planned is None or k == 0:
                after.append(network.step(halved(before[-1]), batch.moves[:, k]))
            else:
                after.append(network.planned(halved(before[-1]), own.codes[:, k, None]))
            answer = network.answered(after[-1], codes[:, k])
            before.append(answer if network.chance is None else answer.where(batch.chance[:, k, None, None], after[-1]))
        whole, answered, moved = torch.cat(before), torch.cat(before[1:]), torch.cat(after)
        told = F.cross_entropy(network.codes(moved).flatten(0, 1), by_move(codes).flatten(), reduction="none")
        passed = batch.other[:, 1:] != batch.other[:, :-1]
        followed = batch.reward + batch.value[:, 1:] * torch.where(passed, -1.0, 1.0)  # the value after the end is 0
        worth = batch.worth if c.worth == "label" else followed
        parts = {
            "policy": self._policy_losses(batch, latent, whole, answered, own),
            "value": network.losses(network.value, whole, by_move(batch.value)),
            "code": told.view(len(moved), -1).sum(-1) * by_move(coded),
            "worth": network.losses(network.worth, moved, by_move(worth.clamp(-1, 1))),
            "reward": network.losses(network.reward, answered, by_move(batch.reward)),
        }
        if network.end is not None:
            over = (~batch.live[:, 1:]).float().masked_fill(~known, torch.nan)
            parts["end"] = network.end.losses(network.end(answered), by_move(over))
        if network.chance is not None and network.turn is not None:
            thrown = batch.chance.float().masked_fill(~known, torch.nan)
            parts["chance"] = network.chance.losses(network.chance(moved), by_move(thrown))
            turn = batch.other[:, 1:].float().masked_fill(~(known & batch.live[:, 1:]), torch.nan)
            parts["turn"] = network.turn.losses(network.turn(answered), by_move(turn))
        weights = {"policy": 1.0, "code": c.code_weight, "reward": c.reward_weight}
        weights |= dict.fromkeys(("value", "worth"), c.value_weight)
        weights |= dict.fromkeys(("end", "chance", "turn"), c.end_weight)
        return weighted(parts, weights, num)

    def _policy_losses(
        self, batch: EpisodeBatch, root: Tensor, whole: Tensor, answered: Tensor, own: OwnCodes | None
    ) -> Tensor:
        """[(K + 1) B] cross-entropy of moves, or at the root of moves and below it of their codes."""
        if own is None or self.network.plan is None:
            return -(by_move(batch.policy) * self.network.policy(whole).log_softmax(-1)).sum(-1)
        of_moves = -(batch.policy[:, 0] * self.network.policy(root).log_softmax(-1)).sum(-1)
        of_codes = -(by_move(own.policy[:, 1:]) * self.network.plan(answered).log_softmax(-1)).sum(-1)
        return torch.cat([of_moves, of_codes])

    @torch.no_grad()
    def metrics(self, batch: EpisodeBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """``whole``: share of next positions rebuilt in every token; ``perplexity``: of codes, in the worst book."""
        _, rebuilt = self._rebuilt(every(batch, self.config.span), learns=False, generator=generator)
        worst = perplexity(rebuilt.codes, self.network.shape[1]).min()
        return {"whole": rebuilt.whole.float().mean(), "perplexity": worst}

    @torch.no_grad()
    def measure(self, records: Dataset, split: str, num: int) -> dict[str, float]:
        """Of all moves from some positions and all answers to them, or all that chance makes of them: ``rebuilt``, the
        share of next positions rebuilt in every token, and ``codes``, the perplexity of their codes in the worst book.

        Nothing where no move from them has a code, or a code spans several own moves: what may lead from one to the
        next is too much to go through, and ``metrics`` measures what was played.
        """
        if self.config.span > 1:
            return {}
        autoencoder, num_whole = self.network.autoencoder, 0
        counts = torch.zeros(self.network.shape, dtype=torch.float64)
        transitions = self._all_transitions(itertools.islice(records.records(split), num))
        while part := list(itertools.islice(transitions, MEASURED_TOGETHER)):
            rows = [torch.from_numpy(np.array(each, np.int64)) for each in zip(*part, strict=True)]
            rebuilt: Rebuilt = autoencoder(*(each.to(autoencoder.stays.device) for each in rows))
            counts += F.one_hot(rebuilt.codes, self.network.shape[1]).sum(0).cpu()
            num_whole += int(rebuilt.whole.sum())
        if not bool(counts.any()):
            return {}
        return {"rebuilt": num_whole / float(counts[0].sum()), "codes": float(in_use(counts).min())}

    def _all_transitions(
        self, records: Iterable[Record]
    ) -> Iterator[tuple[NDArray[np.integer[Any]], int, NDArray[np.integer[Any]]]]:
        """Tokens [L] of a position, a move, and tokens [L] of what may follow, of all moves from some positions."""
        game = self.game
        for record in records:
            state = game.parse(record.state)
            if is_natural(game, state):
                continue
            me = game.player(state)
            row = game.tokens.encode([state], np.array([me]))[0]
            for move in game.legal(state).tolist():
                ends = self._answered(game.play(state, move))
                seen = int(game.moves.seen_by(np.array(move), me))
                for after in game.tokens.encode(ends, np.full(len(ends), me)) if ends else ():
                    yield row, seen, after

    def _answered(self, state: Any) -> list[Any]:
        """The positions that a code after a move can lead to."""
        game = self.game
        if self.config.side == "both":
            return outcomes(game, state) if is_natural(game, state) else []
        return [state] if game.outcome(state) is not None else [game.play(state, a) for a in game.legal(state).tolist()]

    def policy(self) -> VQPolicy:
        """A policy that plays with these weights (shared, not copied)."""
        from genpolicy_policy_model.vq_policy import VQPolicy

        return VQPolicy(self)


def warn_of_collapse(codebooks: Codebooks) -> None:
    """Log a warning that names codebooks of which almost no codes are in use."""
    numbers = codebooks.perplexity()
    if bool((numbers < min(LEAST_PERPLEXITY, LEAST_USE * codebooks.num_codes)).any()):
        _log.warning(
            "a codebook has collapsed: %s of %s codes are in use (perplexity), so codes say almost nothing about "
            "the moves that they stand for. Raise learner.revive_below or learner.settle of the learner vq, lower "
            "learner.commitment, or check that the data set has more than one reply to a move",
            ", ".join(f"{each:.2f}" for each in numbers.tolist()),
            codebooks.num_codes,
        )


def is_natural(game: Game[Any], state: Any) -> bool:
    """Whether chance decides in a position."""
    return game.outcome(state) is None and probabilities(game, state) is not None


def outcomes(game: Game[Any], state: Any) -> list[Any]:
    """All positions after nature's moves."""
    if not is_natural(game, state):
        return [state]
    return [end for move in game.legal(state).tolist() for end in outcomes(game, game.play(state, move))]


def transitions(batch: EpisodeBatch, mask: int) -> Tensor:
    """[B, K] whether a game goes on before a move and what follows it is known."""
    return batch.live[:, :-1] & (batch.states[:, 1:] != mask).all(-1)


def every(batch: EpisodeBatch, span: int) -> EpisodeBatch:
    """The same windows, with ``span`` moves as one: the first of them, and what all of them earn.

    Where a game ends on the way the position in which it ended is what follows.
    """
    if span == 1:
        return batch
    rows, num = len(batch), batch.moves.shape[1] // span
    states, live = batch.states[:, ::span].clone(), batch.live[:, ::span]
    ended_on_way = live[:, :-1] & ~live[:, 1:]
    alive = batch.live[:, : num * span].view(rows, num, span)
    last = span * torch.arange(num, device=states.device) + alive.sum(-1)  # the state after the last move of the game
    at = last.clamp(max=num * span)[..., None].expand(-1, -1, states.shape[-1])
    final = batch.states.gather(1, at)
    states[:, 1:] = torch.where(ended_on_way[..., None], final, states[:, 1:])
    reward = batch.reward[:, : num * span].view(rows, num, span).sum(-1)
    return dataclasses.replace(
        batch,
        states=states,
        moves=batch.moves[:, ::span][:, :num],
        policy=batch.policy[:, ::span],
        value=batch.value[:, ::span],
        reward=reward,
        live=live,
        other=batch.other[:, ::span],
        chance=batch.chance[:, ::span][:, :num],
        worth=batch.worth[:, ::span][:, :num],
    )

"""Plays by a UniZero model: the functions of its transformer, whose keys and values hang in the tree of a search.

Axes: B batch, T tokens, M moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from genpolicy.control import Control
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy_policy_model.latent import Floats
from genpolicy_policy_model.policy import JudgedByHeads, ModelPolicy
from genpolicy_policy_model.unizero import UniZeroLearner
from genpolicy_policy_model.unizero_network import faded
from genpolicy_policy_model.unizero_transformer import BEFORE_ALL, Node, gathered


class UniZeroPolicy(ModelPolicy):
    """Plays the likeliest move, or the best after one step of a learned model that reads the history (UniZero).

    It reads as much of a position's history (``Game.past``) as its layers can reach; where a game keeps none, it
    sees the position alone.
    """

    kind: ClassVar[str] = "unizero"
    learner_class: ClassVar[type[Learner]] = UniZeroLearner
    learner: UniZeroLearner

    def dynamics(self, control: Control) -> TransformerDynamics:
        """Encoder, transformer and heads."""
        return TransformerDynamics(self, control)


class TransformerDynamics(JudgedByHeads):
    """The functions of a UniZero model (``genpolicy_policy_model.latent.Dynamics``); its latents are ``Node``.

    Args:
        policy: Holds the weights.
        control: Checked on the way.
    """

    def __init__(self, policy: UniZeroPolicy, control: Control) -> None:
        super().__init__(policy, policy.learner.network, control)
        self._network, self._config = policy.learner.network, policy.learner.config
        self._mirrored = policy.game.moves.mirrored

    @torch.no_grad()
    def represent(self, states: Sequence[Any]) -> list[Node]:
        """[B] nodes of positions, each with the plies before it that can reach it."""
        game, device, network = self._policy.game, self._policy.device, self._network
        contexts = [self._context(state) for state in states]
        longest = max(len(shown) for shown, _, _ in contexts)
        mask = self._policy.learner.layout.mask
        padding = [longest - len(shown) for shown, _, _ in contexts]
        rows = torch.stack(
            [F.pad(shown, (0, 0, n, 0), value=mask) for n, (shown, _, _) in zip(padding, contexts, strict=True)]
        )
        moves = torch.stack([F.pad(played, (n, 0)) for n, (_, played, _) in zip(padding, contexts, strict=True)])
        plies = torch.arange(longest) - torch.tensor(padding)[:, None]
        plies = plies.where(plies >= 0, BEFORE_ALL)
        with self._policy._evaluating(self._control):
            latents = network.encoder(rows.flatten(0, 1).to(device)).unflatten(0, (len(states), -1))
            tokens, at = network.interleaved(latents, moves.to(device), plies.to(device))
            out, own = network.transformer(tokens, at)
        nodes = []
        for row, (state, (_, _, viewer)) in enumerate(zip(states, contexts, strict=True)):
            kept = slice(2 * padding[row], None)
            numbers = tuple(at[row, kept].tolist())
            memory = own.memory[row, :, :, :, kept]
            nodes.append(Node(memory, numbers, out[row, -1], None, viewer != game.player(state)))
        return nodes

    def _context(self, state: Any) -> tuple[Tensor, Tensor, int]:
        """Positions [C, L] up to this one as the model sees them, the moves [C-1] between, and who sees them."""
        game, config, layout = self._policy.game, self._config, self._policy.learner.layout
        stride = 2 if config.side == "own" else 1
        reach = stride * config.layers * (config.context - 1)  # what a stack of layers sees, each ``context`` plies
        line, played = _replayed(game, state) if reach or config.fade else ([state], [])
        last = len(line) - 1
        first = max(last % stride, last - reach)
        if config.fade:
            first -= first % 2  # windows begin where games do, so their viewer is who began
        begin = max(0, first - config.fade)
        viewer = game.player(line[first])
        rows = layout.tokenizer.encode(line[begin:], np.full(last + 1 - begin, viewer)).astype(np.int64)
        shown = torch.from_numpy(rows)
        if config.fade:
            shown = faded(shown[None], config.fade, layout.mask)[0]
        moves = np.array(played[first:last:stride], np.int64)
        return shown[first - begin :: stride], torch.from_numpy(game.moves.seen_by(moves, viewer)), viewer

    @torch.no_grad()
    def step(self, latents: Sequence[Node], moves: NDArray[np.int64]) -> tuple[list[Node], Floats, Floats]:
        """See ``genpolicy_policy_model.latent.Dynamics``; without an end head no game is over.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        network, device = self._network, self._policy.device
        own_view = np.where([node.flipped for node in latents], self._mirrored[moves], moves)
        plies = torch.tensor([[node.ply] for node in latents], device=device)
        with self._policy._evaluating(self._control):
            past = gathered(latents, self._config.context)
            chosen = network.moves(torch.from_numpy(own_view).to(device))[:, None]
            after, of_move = network.transformer(chosen, plies, past)
            judged = self._judged(after)
            token = network.latent_tokens(network.next_latent(after), plies + 1)
            out, of_latent = network.transformer(token, plies + 1, past.then(of_move))
        memory = of_move.then(of_latent).memory
        nodes = [
            Node(memory[row], (node.ply, node.ply + 1), out[row, 0], node, node.flipped)
            for row, node in enumerate(latents)
        ]
        return nodes, *judged

    @torch.no_grad()
    def predict(self, latents: Sequence[Node]) -> tuple[Floats, Floats]:
        """See ``genpolicy_policy_model.latent.Dynamics``.

        Raises:
            ValueError: a head's numbers are not finite.
        """
        with self._policy._evaluating(self._control):
            features = torch.stack([node.features for node in latents])
            policy, values = self._predicted(self._network.policy(features), features[:, None])
        flipped = np.array([node.flipped for node in latents])
        return np.where(flipped[:, None], policy[:, self._mirrored], policy), values


def _replayed(game: Game[Any], state: Any) -> tuple[list[Any], list[int]]:
    """The positions of a state's history, itself the last, and the moves between them."""
    start, moves = game.past(state)
    line = [game.parse(start)]
    for move in moves:
        line.append(game.play(line[-1], move))
    return [*line[:-1], state], list(moves)

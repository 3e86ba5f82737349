"""ModelLearner: what all learners of models share, the windows that they are trained on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from genpolicy.data.records import Dataset
from genpolicy.data.windows import WindowSource
from genpolicy.errors import ConfigError
from genpolicy.game import Game
from genpolicy.policies.learner import Learner
from genpolicy.sequence import Layout
from genpolicy_policy_model.config import ModelConfig
from genpolicy_policy_model.episodes import Episodes


class ModelLearner(Learner):
    """A learner of a model of a game.

    Args:
        game: The game; its sides take turns.
        config: Options.

    Raises:
        ConfigError: chance decides something in the game, and the model cannot say so.
    """

    knows_chance: ClassVar[bool] = False
    config: ModelConfig

    def __init__(self, game: Game[Any], config: ModelConfig) -> None:
        super().__init__(game, config)
        if game.has_chance and not self.knows_chance:
            raise ConfigError(
                f"learner.kind: chance decides in {game.spec!r}, and this model foretells one outcome of a move; set "
                "learner.kind=vq and learner.side=both"
            )
        self.layout = Layout(game, "s-a", 1)

    @property
    def fingerprint(self) -> str:
        """The layout's."""
        return self.layout.fingerprint

    def meaning(self) -> dict[str, Any]:
        """What the outputs of the heads of value and reward stand for."""
        c = self.config
        bins = {"support": list(c.support), "transform": c.transform} if c.value == "categorical" else {}
        return {"value": c.value, **bins}

    @property
    def hidden_layers(self) -> tuple[nn.Module, ...]:
        """The parts whose matrices Muon moves where a run sets it; AdamW moves the others."""
        return ()

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As ``Learner.param_groups``; Muon gets the matrices of ``hidden_layers``, neither tables nor biases."""
        decayed, others = super().param_groups(weight_decay)
        tables = {id(p) for m in self.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        tables |= {id(p) for name, p in self.named_parameters() if ".bias." in name or name.endswith("marks")}
        inner = [p for part in self.hidden_layers for p in part.parameters() if p.ndim == 2 and id(p) not in tables]
        return [{**decayed, "muon": inner}, others]

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        """Episodes of ``unroll`` moves; what is measured of walks has one, since walks leave a small split soon.

        Raises:
            ConfigError: more moves than the split's games have.
            DatasetError: records without what ``source``, ``targets`` or ``value_target`` ask for.
        """
        c, training = self.config, split == self.trained_split
        unroll = self.num_moves(c.unroll if training or c.source == "games" else 1)
        try:
            return Episodes(
                records,
                split,
                self.game,
                unroll=unroll,
                side=c.side,
                source=c.source,
                targets=c.targets,
                value=c.value_target,
                seed=seed,
                cache_dir=None if c.cache_dir is None else Path(c.cache_dir),
            )
        except ConfigError as error:
            text = self._of_options(str(error))
            name = text.partition(" ")[0].partition("=")[0]
            option = "value_target" if name == "value" else name
            raise ConfigError(f"learner.{option}{text[len(name) :]}" if hasattr(c, option) else text) from error

    def num_moves(self, unroll: int) -> int:
        """Moves of a window in which the model is unrolled so many times."""
        return unroll

    def _of_options(self, text: str) -> str:
        """A message of ``Episodes`` with the learner's ``unroll`` in place of the window's number of moves."""
        each = self.num_moves(1)
        found = re.fullmatch(r"unroll=(\d+): (.*); set unroll=(\d+) at most", text)
        if each == 1 or found is None:
            return text
        asked, longest, why = int(found[1]), int(found[3]), found[2]
        if longest < each:  # no unroll helps
            return f"span={each} takes runs of {each} own moves: {why}; set span={longest}, or make that split larger"
        return f"unroll={asked // each} takes runs of {asked} own moves: {why}; set unroll={longest // each} at most"

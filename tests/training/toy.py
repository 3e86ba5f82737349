"""A learner small enough to train in a blink, registered by an entry point of its own in a temporary folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from genpolicy.data.records import Dataset
from genpolicy.data.window_source import build_windows
from genpolicy.data.windows import TokenBatch, WindowOptions, WindowSource
from genpolicy.game import Game
from genpolicy.policies.base import Policy
from genpolicy.policies.learner import Learner
from genpolicy.sequence import Layout
from genpolicy_policy_baselines.simple import RandomPolicy


@dataclass
class ToyConfig:
    width: int = 16
    dropout: float = 0.2
    poison_at: int = 0
    """The loss is not a number from this call on; 0: never."""


class ToyPolicy(RandomPolicy):
    """Plays at random; saves weights and a ``config.yaml`` of ours."""

    kind: ClassVar[str] = "toy"
    learner: ToyLearner

    def save_pretrained(self, folder: str | Path) -> Path:
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True)
        save_file(self.learner.state_dict(), str(folder / "model.safetensors"))
        (folder / "config.yaml").write_text(f"policy: toy\nformat: 1\ngame: {self.game.spec}\n")
        return folder

    @classmethod
    def from_folder(cls, folder: Path, config: dict[str, Any], **options: Any) -> ToyPolicy:
        from safetensors.torch import load_file

        from genpolicy.registry import load_game

        learner = ToyLearner(load_game(config["game"]), ToyConfig())
        learner.load_state_dict(load_file(str(folder / "model.safetensors")))
        return learner.policy()


class ToyLearner(Learner):
    """The move from the root's tokens by two matrices, with dropout (a global generator) and noise (the loop's own)."""

    Config: ClassVar[type[Any]] = ToyConfig

    def __init__(self, game: Game[Any], config: ToyConfig) -> None:
        super().__init__(game, config)
        self.layout = Layout(game, "s-a", 1)
        self.embedding = nn.Embedding(len(game.tokens.symbols), config.width)
        self.hidden = nn.Linear(config.width * game.tokens.length, config.width)
        self.head = nn.Linear(config.width, len(game.moves))
        self.calls = 0

    def windows(self, records: Dataset, split: str, *, seed: int) -> WindowSource:
        return build_windows(records, split, self.game, self.layout, WindowOptions(redraw=True, seed=seed))

    def loss(self, batch: TokenBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.embedding(batch.tokens[:, : self.layout.state_length])
        x = x + 0.01 * torch.randn(x.shape, generator=generator, device=x.device)
        x = nn.functional.dropout(x.flatten(1), self.config.dropout, self.training)
        logits = self.head(torch.tanh(self.hidden(x)))
        labels = batch.tokens[:, self.layout.first_action] - self.layout.move_offset
        loss = nn.functional.cross_entropy(logits, labels)
        self.calls += self.training
        if self.config.poison_at and self.calls >= self.config.poison_at:
            loss = loss * float("nan")
        return loss, {"accuracy": (logits.argmax(-1) == labels).float().mean()}

    def elbo(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        torch.rand(3)  # measuring may draw from the global generator, and training must not notice
        return super().elbo(batch, generator)

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        decayed, others = super().param_groups(weight_decay)
        return [{**decayed, "muon": [self.hidden.weight]}, others]

    def policy(self) -> Policy:
        made = ToyPolicy(self.game)
        made.learner = self
        return made


def register(folder: Path) -> Path:
    """Make a distribution that names the toy's entry points; returns the folder to put on ``sys.path``."""
    info = folder / "toy_learner-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-learner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[genpolicy.learners]\ntoy = {__name__}:ToyLearner\n\n[genpolicy.policies]\ntoy = {__name__}:ToyPolicy\n"
    )
    return folder

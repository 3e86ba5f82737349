"""Optimisers, the learning rate over a run, and the running average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from genpolicy.errors import ConfigError, did_you_mean
from genpolicy.training.config import OptimConfig


def freeze_others(learner: nn.Module, only: Sequence[str]) -> None:
    """Let nothing learn but the modules and parameters of these names; with none, everything as before.

    Raises:
        ConfigError: a name of nothing that learns.
    """
    if not only:
        return
    left, parts = set(only), set[str]()
    for name, parameter in learner.named_parameters():
        if parameter.requires_grad:
            within = {name.rsplit(".", i)[0] for i in range(name.count(".") + 1)}
            left, parts = left - within, parts | within
            parameter.requires_grad_(not within.isdisjoint(only))
    if left:
        part = min(left)
        raise ConfigError(f"optim.only: the learner has no parameters {part!r}.{did_you_mean(part, sorted(parts))}")


def make_optimizers(groups: list[dict[str, Any]], config: OptimConfig) -> dict[str, Any]:
    """The optimisers of a run by name: ``adamw``, and ``muon`` (Jordan et al. 2024) where the run sets it.

    Args:
        groups: A learner's parameter groups, which name the matrices for Muon and the tables of attention biases
            (``Learner.param_groups``).
        config: The optimisers' options.

    Raises:
        ConfigError: ``optim.name=muon`` or a rate ``optim.bias_lr``, and the learner names no parameter for it.
    """
    if config.bias_lr != 1 and not any(group.get("tables") for group in groups):
        raise ConfigError(
            f"optim.bias_lr={config.bias_lr:g}: the learner has no attention bias with tables; set optim.bias_lr=1, or "
            "a bias that has them, such as network.bias=relative"
        )
    hidden: list[nn.Parameter] = []
    if config.name == "muon":
        hidden = [p for group in groups for p in group.get("muon", ())]
        if not hidden:
            raise ConfigError("optim.name=muon: the learner names no matrix in param_groups; set optim.name=adamw")
    chosen = {id(p) for p in hidden}
    groups = [{**g, "params": [p for p in g["params"] if id(p) not in chosen]} for g in groups]
    groups = [part for group in groups for part in _with_tables_apart(group, config)]
    optimizers: dict[str, Any] = {
        "adamw": torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            foreach=True,
        )
    }
    if hidden:
        optimizers["muon"] = torch.optim.Muon(
            hidden,
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def _with_tables_apart(group: dict[str, Any], config: OptimConfig) -> list[dict[str, Any]]:
    """A group as AdamW takes it, and one of its biases' tables where they have a learning rate of their own."""
    plain = {key: value for key, value in group.items() if key not in ("muon", "tables")}
    left = {id(p) for p in group["params"]}
    tables = [p for p in group.get("tables", ()) if id(p) in left]
    if config.bias_lr == 1 or not tables:
        return [plain]
    apart = {id(p) for p in tables}
    plain["params"] = [p for p in group["params"] if id(p) not in apart]
    return [plain, {**plain, "params": tables, "lr": config.bias_lr * config.lr, "weight_decay": 0.0}]


def learning_rate_factor(progress: float, config: OptimConfig) -> float:
    """Part of the peak learning rate, in [0, 1], at a ``progress`` of the budget in [0, 1]."""
    if progress < config.warmup:
        return progress / config.warmup
    if config.schedule == "constant":
        return 1.0
    done = min(1.0, (progress - config.warmup) / (1.0 - config.warmup))
    return config.final + (1.0 - config.final) * 0.5 * (1.0 + math.cos(math.pi * done))


class WeightAverage:
    """Exponential running average of a module's parameters and floating-point buffers, kept in float32."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.num_updates = 0
        self.average = {name: tensor.detach().float().clone() for name, tensor in _averaged(module)}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Move the average towards the module's weights."""
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        self.num_updates += 1
        names, tensors = zip(*_averaged(module), strict=True)
        averages = [self.average[name] for name in names]
        torch._foreach_lerp_(averages, [t.detach().float() for t in tensors], 1.0 - decay)

    @torch.no_grad()
    def swap(self, module: nn.Module) -> None:
        """Exchange the average and the module's weights; a second call exchanges them back."""
        for name, tensor in _averaged(module):
            weights = tensor.detach().clone()
            tensor.copy_(self.average[name])
            self.average[name] = weights.float() if weights.dtype != torch.float32 else weights

    def load(self, average: Mapping[str, Tensor], num_updates: int) -> None:
        """Take over a saved average."""
        for name, tensor in self.average.items():
            tensor.copy_(average[name])
        self.num_updates = num_updates


def _averaged(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())

"""Are the hand-written CPU kernels never slower than plain torch? Attention, linear layers and dropout, one by one.

    OMP_NUM_THREADS=1 python benchmarks/kernels.py [--rounds 15] [--only attention] [--settings machine AVX2 ...]

Each kernel of ``genpolicy.networks.cpu`` takes turns with torch's function of the same name, at the shapes of a
training update of the chess demo (64 windows of 156 tokens, width 128) and of the paper's 10k configuration (8 of 312,
width 256), forward alone and forward with backward; linear layers also as a decision about one position has them,
without gradients. CPU time of one thread; the ratio is torch's over ours, so below 1 the kernel is slower.

Each setting is a process of its own whose environment keeps the libraries from instructions that the processor has:
``AVX2`` stands for a processor without AVX-512, ``ATen`` for one without AVX2. Where ours is torch's own function the
ratio is 1 up to noise, so what is wanted is at least 0.97.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from ratios import describe, in_turns, ratio
from torch import Tensor
from torch.nn import functional as F

from genpolicy.networks.cpu import attend, linear
from genpolicy.networks.cpu.dropout import dropout

RUN = {"rounds": "--rounds", "quick": ["--rounds", "3", "--settings", "machine"]}
SETTINGS = {
    "machine": {},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "ATen": {"ATEN_CPU_CAPABILITY": "default"},
}
HEADS, DROPOUT = 8, 0.1


@dataclass(frozen=True)
class Shape:
    """A batch of windows."""

    name: str
    batch: int
    tokens: int
    width: int


SHAPES = (Shape("demo", 64, 156, 128), Shape("paper", 8, 312, 256))


@dataclass(frozen=True)
class Case:
    """A kernel, torch's function, and what both take."""

    name: str
    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    trains: bool = True


def plain_attention(dropped: float) -> Callable[..., Tensor]:
    """Attention of [B, N, 3, H, D] by torch's function."""

    def attention(qkv: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropped).transpose(1, 2)

    return attention


def own_attention(dropped: float) -> Callable[..., Tensor]:
    return lambda qkv, bias=None: attend(qkv, bias, dropped)


def cases(shape: Shape) -> Iterator[Case]:
    """Every kernel at this shape, dropout and the biases both with and without."""

    def drawn(*sizes: int, trains: bool = True) -> Tensor:
        return torch.randn(*sizes, requires_grad=trains)

    b, n, w = shape.batch, shape.tokens, shape.width
    qkv = drawn(b, n, 3, HEADS, w // HEADS)
    biases: dict[str, tuple[Tensor, ...]] = {
        "no bias": (),
        "a bias": (drawn(HEADS, n, n),),
        "a fixed bias": (drawn(HEADS, n, n, trains=False),),
        "a bias of each row": (drawn(b, HEADS, n, n),),
    }
    for name, bias in biases.items():
        for dropped in (0.0, DROPOUT):
            yield Case(
                f"attention, {name}, dropout {dropped:g}",
                own_attention(dropped),
                plain_attention(dropped),
                (qkv, *bias),
            )
    for inner, outer in ((w, 3 * w), (w, w), (w, 4 * w), (4 * w, w)):
        weights = drawn(outer, inner), drawn(outer)
        name = f"linear {inner} to {outer}"
        yield Case(name, linear, F.linear, (drawn(b, n, inner), *weights))
        alone = (each.detach() for each in weights)
        yield Case(f"{name}, one position", linear, F.linear, (drawn(1, n, inner, trains=False), *alone), trains=False)
    yield Case("dropout", lambda x: dropout(x, DROPOUT, True), lambda x: F.dropout(x, DROPOUT), (drawn(b, n, w),))


def measure(case: Case, where: str, rounds: int) -> None:
    """Report the ratios of one case."""
    gradient = torch.randn_like(case.ours(*case.inputs)) if case.trains else None

    def forward(call: Callable[..., Tensor]) -> Callable[[], object]:
        return lambda: call(*case.inputs)

    def both(call: Callable[..., Tensor]) -> Callable[[], object]:
        trained = [each for each in case.inputs if each.requires_grad]
        return lambda: torch.autograd.grad(call(*case.inputs), trained, gradient)

    calls = {("forward", "ours"): forward(case.ours), ("forward", "plain"): forward(case.plain)}
    if case.trains:
        calls |= {
            ("forward and backward", "ours"): both(case.ours),
            ("forward and backward", "plain"): both(case.plain),
        }
    seconds = in_turns(calls, rounds, clock="cpu")
    for part in dict.fromkeys(part for part, _ in calls):
        name = f"{case.name}, {part}, {where}"
        ratio(name, seconds[part, "plain"], seconds[part, "ours"], wanted="at least 0.97")


def main() -> int:
    """Measure in a process for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", metavar="WORD", help="kernels whose name begins with this")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.here:
        status = 0
        for name in arguments.settings:
            own = ["--here", "--rounds", str(arguments.rounds), "--only", arguments.only, "--settings", name]
            status |= subprocess.run([sys.executable, __file__, *own], env=os.environ | SETTINGS[name]).returncode
        return status
    (setting,) = arguments.settings
    torch.set_num_threads(1)
    torch.manual_seed(0)
    describe(f"kernels, setting {setting}: torch's CPU time over ours, one thread")
    for shape in SHAPES:
        for case in cases(shape):
            if case.name.startswith(arguments.only):
                measure(case, shape.name if setting == "machine" else f"{shape.name}, {setting}", arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

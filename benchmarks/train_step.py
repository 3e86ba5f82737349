"""One training step of the paper's 10k configuration against Hugging Face's GPT-2 of the same shape, in one run.

Run ``python benchmarks/train_step.py [--steps 12] [--device cuda --dtype bf16 --compile --batch 256]``.

Both models (8 layers, width 256, 8 heads, s | a s a s a s a of chess, unified tied head, dropout at GPT-2's places)
take the same noised tokens, compute the loss of the paper's released code (cross-entropy at the masked tokens, linear
weight times T, divided by the masked tokens of the batch), its gradient, and a step of Adam. GPT-2 is made
bidirectional by a 4-D attention mask of zeros, as current ``transformers`` need; that is verified on its output, and so
is that both compute the same function when they are given the same weights. The steps of the two alternate, so that
other work on the machine hits both; the ratio is the median over pairs of neighbouring steps.

Logits and the last block's feed-forward layers are computed at the masked tokens alone, as in ``token_nll``.

The wanted ratios on a CPU: at least 1.4 at the paper's dropout of 0.1 and at least 1 without dropout.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from ratios import CLOCKS, describe, in_turns, ratio, times
from torch import Tensor, nn
from torch.nn import functional as F

import genpolicy
from genpolicy.diffusion import Absorbing
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.networks.transformer import SelfAttention
from genpolicy.sequence import Layout

RUN = {
    "rounds": "--steps",
    "quick": ["--steps", "2", "--batch", "1"],
    "packages": ["transformers"],
}
WANTED = {0.1: "at least 1.4", 0.0: "at least 1"}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NUM_LAYERS, WIDTH, NUM_HEADS, HORIZON = 8, 256, 8, 4


@dataclass(frozen=True)
class Windows:
    """A batch as ``Process.loss`` reads it."""

    tokens: Tensor
    frozen: Tensor
    target: Tensor


class HuggingFace(nn.Module):
    """GPT-2 as in the paper's released code: logits at every token, the loss masked afterwards."""

    def __init__(self, layout: Layout, dropout: float) -> None:
        super().__init__()
        self.gpt2 = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=layout.num_symbols + 1,
                n_positions=layout.length,
                n_embd=WIDTH,
                n_layer=NUM_LAYERS,
                n_head=NUM_HEADS,
                resid_pdrop=dropout,
                embd_pdrop=dropout,
                attn_pdrop=dropout,
                use_cache=False,
            )
        )

    def forward(self, tokens: Tensor, t: Tensor | None = None) -> Tensor:
        """Logits [B, N, K + 1]."""
        b, n = tokens.shape
        everything = torch.zeros(b, 1, n, n, device=tokens.device, dtype=next(self.parameters()).dtype)
        logits: Tensor = self.gpt2(tokens, attention_mask=everything).logits
        return logits

    def loss(self, process: Absorbing, batch: Windows, generator: torch.Generator) -> Tensor:
        """What the released code computes, with reduction ``batch`` and linear weights."""
        t = process.sample_times(len(batch.tokens), generator, batch.tokens.device)
        noised, where = process.corrupt(batch.tokens, t, frozen=batch.frozen, admitted=None, generator=generator)
        logits = self(noised)
        nll = F.cross_entropy(logits.flatten(0, 1), batch.tokens.flatten(), reduction="none").view(t.shape[0], -1)
        weight = process.num_timesteps * (1 - (t - 1) / process.num_timesteps)
        return (nll.masked_fill(~where, 0.0) * weight[:, None]).sum() / where.sum()


class Ours(nn.Module):
    """The same through this library: logits at the masked tokens alone."""

    def __init__(self, layout: Layout, dropout: float) -> None:
        super().__init__()
        self.network = DenoisingTransformer(layout, network_config(dropout))

    def loss(self, process: Absorbing, batch: Windows, generator: torch.Generator) -> Tensor:
        """``Process.loss``."""
        return process.loss(self.network, batch, generator)


def network_config(dropout: float) -> NetworkConfig:
    return NetworkConfig(num_layers=NUM_LAYERS, width=WIDTH, num_heads=NUM_HEADS, dropout=dropout, tied=True)


@torch.no_grad()
def copy_weights(ours: DenoisingTransformer, theirs: transformers.GPT2LMHeadModel) -> None:
    """Give GPT-2 our weights (its Conv1D keeps them transposed)."""
    body, trunk = theirs.transformer, ours.trunk
    body.wte.weight.copy_(trunk.embedding.symbol.weight)
    body.wpe.weight.copy_(trunk.embedding.position)
    pairs = [(body.ln_f, trunk.norm)]
    for theirs_block, block in zip(body.h, trunk.blocks, strict=True):
        pairs += [(theirs_block.ln_1, block.norm_attention), (theirs_block.ln_2, block.norm_mlp)]
        for conv, linear in (
            (theirs_block.attn.c_attn, block.attention.qkv),
            (theirs_block.attn.c_proj, block.attention.out),
            (theirs_block.mlp.c_fc, block.mlp.inner),
            (theirs_block.mlp.c_proj, block.mlp.out),
        ):
            conv.weight.copy_(linear.weight.t())
            conv.bias.copy_(linear.bias)
    for theirs_norm, norm in pairs:
        theirs_norm.load_state_dict(norm.state_dict())


@torch.no_grad()
def verify(layout: Layout, tokens: Tensor) -> None:
    """Check that GPT-2 is bidirectional and that equal weights give equal logits.

    Raises:
        SystemExit: either does not hold, so that the times would not be comparable.
    """
    ours, theirs = Ours(layout, 0.1).eval(), HuggingFace(layout, 0.1).eval()
    copy_weights(ours.network, theirs.gpt2)
    changed = tokens[:2].clone()
    changed[:, -1] = layout.mask
    first = theirs(tokens[:2])
    seen = (first[:, 0] - theirs(changed)[:, 0]).abs().max().item()
    logits = TypedLogits.of(ours.network(tokens[:2])).groups[0].logits
    apart = (first[..., : layout.num_symbols] - logits).abs().max().item()
    print(f"GPT-2's first output moves by {seen:.1e} when the last token changes: bidirectional")
    print(f"with equal weights the logits differ by at most {apart:.1e} (GPT-2's tanh GELU, ours exact)")
    if not seen > 0 or not apart < 1e-2:
        raise SystemExit("the two models do not compute the same: no times are reported")


def clean_windows(layout: Layout, num: int, device: torch.device) -> Windows:
    """Random tokens that the layout admits."""
    weights = torch.from_numpy(layout.admitted).double()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.multinomial(weights, num, replacement=True, generator=generator).t().contiguous()
    given = torch.from_numpy(layout.given).expand(num, -1)
    return Windows(tokens.to(device), given.to(device), ~given.to(device))


def training_step(
    model: HuggingFace | Ours, layout: Layout, batch: Windows, dtype: torch.dtype, compiled: bool
) -> Callable[[], None]:
    """A call that makes one update, and waits for it."""
    device = batch.tokens.device
    process = Absorbing(layout.num_symbols, 20, "linear", weighting="linear", reduction="batch")
    generator = torch.Generator(device).manual_seed(0)
    model.to(device)
    if compiled:
        (model.gpt2 if isinstance(model, HuggingFace) else model.network).compile()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)

    def call() -> None:
        optimizer.zero_grad()
        mixed = torch.autocast(device.type, dtype) if dtype != torch.float32 else contextlib.nullcontext()
        with mixed:
            loss = model.loss(process, batch, generator)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return call


def flops_per_step(ours: Ours, layout: Layout, batch: int) -> float:
    """Products of one update, forward and backward: 6 a weight and token, attention, and the head at half the tokens.

    Half, because t is uniform and alpha linear, so that half of the imagined tokens are masked in the mean.
    """
    trunk = sum(p.numel() for name, p in ours.network.trunk.named_parameters() if "embedding" not in name)
    attention = sum(12 * layout.length * WIDTH for m in ours.modules() if isinstance(m, SelfAttention))
    head = 6 * WIDTH * layout.num_symbols * float((~torch.from_numpy(layout.given)).sum()) / 2
    return batch * (layout.length * (6 * trunk + attention) + head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each model and rate of dropout")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile for both models")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    parser.add_argument("--peak", type=float, default=989.0, help="TFLOP/s of the GPU (H100 and H200: 989 bf16, dense)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu on a machine with other work")
    args = parser.parse_args()
    if args.steps < 2:
        parser.error("--steps must be at least 2 for a spread")
    transformers.logging.set_verbosity_error()
    device = torch.device(args.device)
    layout = Layout(genpolicy.load_game("chess"), "s-asa", HORIZON)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    threads = f"{torch.get_num_threads()} threads, {args.clock} time"
    describe(f"{name}, {threads}, {args.dtype}, batch {args.batch}, transformers {transformers.__version__}")
    verify(layout, clean_windows(layout, 2, torch.device("cpu")).tokens)
    batch = clean_windows(layout, args.batch, device)
    for dropout in args.dropout:
        models = {"GPT2LMHeadModel": HuggingFace(layout, dropout), "genpolicy": Ours(layout, dropout)}
        calls = {
            name: training_step(model.train(), layout, batch, DTYPES[args.dtype], args.compile)
            for name, model in models.items()
        }
        spent = in_turns(calls, args.steps, clock=args.clock)
        print(f"dropout {dropout}: {layout.length} tokens, {layout.num_symbols + 1} symbols")
        for name, seconds in spent.items():
            times(f"an update of {name}, dropout {dropout}", seconds)
        what = f"an update of GPT2LMHeadModel over one of genpolicy, dropout {dropout}"
        ratio(what, spent["GPT2LMHeadModel"], spent["genpolicy"], wanted=WANTED.get(dropout))
        middle = statistics.median(spent["genpolicy"])
        rate = flops_per_step(models["genpolicy"], layout, args.batch) / middle / 1e12  # type: ignore[arg-type]
        use = (
            f", {100 * rate / args.peak:.1f} % of {args.peak:g} (model FLOP utilisation)"
            if device.type == "cuda"
            else ""
        )
        print(f"  genpolicy computes {rate:.3g} TFLOP/s{use}")


if __name__ == "__main__":
    main()

"""Peak memory of one training step by head: what the paper's code does, the unified head, the typed head.

Run ``python benchmarks/memory.py [--batch 32] [--device cuda]``. Each case runs in a process of its own. On a CPU the
figure is the growth of the largest resident set over that of the built model (``getrusage``); on a GPU it is
``torch.cuda.max_memory_allocated``. The network is the paper's 10k configuration (8 layers, width 256,
s | a s a s a s a of chess) without dropout.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import torch
from ratios import describe, ratio
from torch.nn import functional as F

import genpolicy
from genpolicy.diffusion import Absorbing
from genpolicy.diffusion.logits import TypedLogits
from genpolicy.networks import DenoisingTransformer, NetworkConfig
from genpolicy.sequence import Layout

RUN = {"quick": ["--batch", "4"]}
CASES = {
    "everywhere": "unified head, logits at every token (the paper's code)",
    "unified": "unified head, logits at the trained tokens",
    "typed": "typed head, logits at the trained tokens",
}


def peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(case: str, batch: int, device: torch.device) -> int:
    """Bytes by which one update (forward, loss, backward, Adam) exceeds the model that is ready for it."""
    layout = Layout(genpolicy.load_game("chess"), "s-asa", 4)
    typed = case == "typed"
    config = NetworkConfig(head="typed" if typed else "unified", tied=True)
    network = DenoisingTransformer(layout, config).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4)
    process = Absorbing(layout.num_symbols, 20)
    generator = torch.Generator(device).manual_seed(0)
    weights = torch.from_numpy(layout.admitted).double()
    clean = torch.multinomial(weights, batch, replacement=True).t().contiguous().to(device)
    given = torch.from_numpy(layout.given).to(device).expand(batch, -1)
    t = torch.full((batch,), 10, device=device)
    noised, where = process.corrupt(clean, t, frozen=given, admitted=None, generator=generator)
    before = peak_bytes(device)
    if case == "everywhere":
        logits = TypedLogits.of(network(noised, t)).groups[0].logits
        nll = F.cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="none")
        loss = nll.masked_fill(~where.flatten(), 0.0).sum() / where.sum()
    else:
        loss = network.token_nll(noised, t, clean, where).sum() / where.sum()
    loss.backward()
    optimizer.step()
    return peak_bytes(device) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--case", choices=CASES, help="measure this one here and print bytes")
    args = parser.parse_args()
    device = torch.device(args.device)
    if args.case:
        print(measure(args.case, args.batch, device))
        return
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    describe(f"memory of an update on {name}, float32, batch {args.batch}")
    bytes_of = {}
    for case, meaning in CASES.items():
        command = [sys.executable, __file__, "--case", case, "--batch", str(args.batch), "--device", args.device]
        bytes_of[case] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"  {bytes_of[case] / 2**20:8.0f} MiB  {meaning}")
    for case in ("everywhere", "unified"):
        ratio(f"memory, typed head over {CASES[case]}", [bytes_of["typed"]], [bytes_of[case]])


if __name__ == "__main__":
    main()

"""How many records a second a GPU trains on, and which part of its peak it uses (model FLOP utilisation).

    python benchmarks/gpu.py [CONFIG ...] [--batch 256 1024] [--updates 20] [--compile]

Updates as ``genpolicy train`` makes them, in bf16: batches of ``sample:chess`` made ahead by a thread, loss, gradient
and optimiser. The operations are the learner's ``flops_per_record``, which counts the transformer's blocks alone, so
what heads and embeddings compute is time but not use. The GPU is waited for after every update.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import torch
from ratios import describe, rate

import genpolicy
from genpolicy.config import compose
from genpolicy.data.records import Dataset
from genpolicy.data.stream import Share, Updates
from genpolicy.shipped import data_folder
from genpolicy.training import optim
from genpolicy.training.config import RunConfig
from genpolicy.training.setup import make_learner, make_stream

RUN = {"rounds": "--updates", "quick": ["--updates", "2"], "programs": ["nvidia-smi"]}
CONFIGS = ("chess/diffusearch-10k", "chess/demo-imagine", "chess/demo-s-a")
WARM_UP = 4


def records_per_s(
    name: str, size: int, updates: int, device: torch.device, *, compiled: bool
) -> tuple[list[float], float]:
    """Records per second of each update, and the operations of a record."""
    data = Dataset.open(data_folder("sample:chess"))
    config = compose(RunConfig, [name], [])
    torch.manual_seed(0)
    learner = make_learner(genpolicy.load_game(data.game_spec), config.learner).to(device).train()
    if compiled:
        for part in learner.children():
            part.compile()
    optimizers = optim.make_optimizers(learner.param_groups(config.optim.weight_decay), config.optim)
    stream = make_stream(config.learner["kind"], learner, data, config.data, seed=0)
    batches = Updates(stream, Share(size), name, prefetch=4, pin=device.type == "cuda").starting_at(0)
    generator, rates = torch.Generator(device).manual_seed(0), []
    for (batch,) in islice(batches, updates + WARM_UP):
        began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            loss, _ = learner.loss(batch.to(device), generator)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        rates.append(size / (time.perf_counter() - began))
    batches.close()
    return rates[WARM_UP:], learner.flops_per_record() or 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", default=CONFIGS, metavar="CONFIG")
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--compile", action="store_true", help="compile the network, as trainer.compile does")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--peak", type=float, default=989.0, help="TFLOP/s of the GPU (H100 and H200: 989 bf16, dense)")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    describe(torch.cuda.get_device_name() if device.type == "cuda" else "CPU")
    for name in arguments.configs:
        for size in arguments.batch:
            try:
                rates, flops = records_per_s(name, size, arguments.updates, device, compiled=arguments.compile)
            except torch.OutOfMemoryError:
                print(f"{name}, {size} records an update: the GPU's memory is too small")
                continue
            kind = ", compiled" if arguments.compile else ""
            rate(f"{name}, {size} records an update{kind}", rates, "records/s")
            use = sorted(rates)[len(rates) // 2] * flops / 1e12
            print(f"  {flops:.3g} FLOP a record: {use:.3g} TFLOP/s, {100 * use / arguments.peak:.1f} % of the peak")


if __name__ == "__main__":
    main()

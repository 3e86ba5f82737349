"""A policy's network: its device, its file and the checks on it, and hooks that can stop a call half-way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.hooks import RemovableHandle

from genpolicy.errors import CheckpointError
from genpolicy.files import read_at_most, sha256_of
from genpolicy.networks.budget import budget, take

CPU_ROWS = 128
"""Most rows of a network call on a CPU. The features of more rows are larger than what the allocator keeps for reuse:
a search of eight candidates would spend a quarter of its time waiting for cleared pages."""
MAX_HEADER_BYTES = 1 << 21  # the names and shapes of some 15,000 tensors


def find_device(name: str) -> torch.device:
    """The device of a name.

    Raises:
        ValueError: no such device, or not on this machine.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device {name!r} does not exist; write cpu, cuda, cuda:0 or mps") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device {name!r} is not supported; write cpu, cuda, cuda:0 or mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device {name!r}: torch sees no Apple GPU here; use device=cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch sees no CUDA device here; use device=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: there are {torch.cuda.device_count()} CUDA devices, counted from 0")
    return device


_STORED_AS = {torch.float32: (torch.float32, torch.float16)}
"""Types in which a file may hold weights; half precision makes it smaller (``genpolicy pack``)."""
LEVELS = 2
"""Depth of checked modules: the trunk and its blocks. Deeper, checking costs a tenth of a small call."""


def check_between(network: nn.Module, check: Callable[[], None]) -> list[RemovableHandle]:
    """Call ``check`` before every call of a network by this thread, and between its larger parts.

    Weights may be shared with a policy in another thread; its calls are not checked.

    Args:
        network: Gets forward hooks; what ``check`` raises comes out of its call.
        check: As ``Control.check``.

    Returns:
        Handles that remove the hooks.
    """
    thread = threading.get_ident()

    def hook(*_: Any) -> None:
        if threading.get_ident() == thread:
            check()

    return [part.register_forward_pre_hook(hook) for part in dict.fromkeys([network, *_parts(network, LEVELS)])]


def _parts(module: nn.Module, levels: int) -> Iterator[nn.Module]:
    """The callable modules inside a module, this many levels deep; a list of modules is not a level."""
    for child in module.children() if levels else ():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts(child, levels)
        else:
            yield child
            yield from _parts(child, levels - 1)


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Everything that is saved, by name; a tensor that two modules share has one name."""
    kept = network.state_dict().keys()
    buffers = {name: buffer for name, buffer in network.named_buffers() if name in kept}
    return {**dict(network.named_parameters()), **buffers}


SPARE_WEIGHTS = 1 << 22
"""Weights of a learner that its policy's file need not have."""
WEIGHTS_PER_TENSOR = 1 << 10  # what a tensor counts for besides its own: a module of one takes kilobytes, too


@contextmanager
def bounded_by(path: Path) -> Iterator[None]:
    """Inside, modules that this thread makes have at most as many weights as a weights file has bytes, and
    ``SPARE_WEIGHTS`` more.

    So a damaged configuration cannot fill the memory before its tensors are compared with the file's.

    Raises:
        CheckpointError: there would be more, or the modules cannot be made.
    """

    def count(_: nn.Module, name: str, parameter: nn.Parameter) -> None:
        # torch has reserved this parameter's memory, but not written to it
        take(parameter.numel() + WEIGHTS_PER_TENSOR, f"its {name} has shape {list(parameter.shape)}")

    size = 0  # of a file that ``load_weights`` will refuse
    with suppress(SafetensorError, OSError), _opened(path):
        size = path.stat().st_size
    handle = register_module_parameter_registration_hook(count)
    try:
        with budget(SPARE_WEIGHTS + size):
            yield
    except (MemoryError, RuntimeError) as error:
        what = f"{path.parent}/config.yaml: describes a network that is larger than its weights, or cannot be made"
        raise CheckpointError(f"{what} ({error}); it is damaged, copy or train it again") from error
    finally:
        handle.remove()


def _opened(path: Path) -> Any:
    """A safetensors file, whose header says how long each tensor is and agrees with the file's size.

    Raises:
        SafetensorError: it does not.
        OSError: it cannot be read, or is not a regular file.
    """
    if not path.is_file():  # opening a pipe would wait for a writer
        raise OSError(f"{path}: not a regular file")
    with path.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise SafetensorError(f"its header would have {length:,} bytes")
    return safe_open(path, framework="pt")


def load_weights(network: nn.Module, path: Path, checksum: str | None) -> None:
    """Fill a network from a file that ``weights_of`` was saved to.

    Args:
        network: Changed in place.
        path: A safetensors file.
        checksum: SHA-256 that it should have; None skips the check.

    Raises:
        CheckpointError: the file is missing, damaged, diverged, or of a network of another shape.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; the policy's weights are missing, copy or train it again")
    expected, loaded = weights_of(network), dict[str, Tensor]()
    try:
        with _opened(path) as file:
            names = set(file.keys())
            wrong = [f"{name} is missing" for name in expected if name not in names]
            wrong += [f"{name[:100]!r} is not known" for name in names if name not in expected]
            for name, tensor in expected.items() if not wrong else ():
                shape = file.get_slice(name).get_shape()
                if shape != list(tensor.shape):
                    wrong.append(f"{name} has shape {shape}, expected {list(tensor.shape)}")
                elif (found := file.get_tensor(name)).dtype not in _STORED_AS.get(tensor.dtype, (tensor.dtype,)):
                    wrong.append(f"{name} has type {found.dtype}, expected {tensor.dtype}")
                else:
                    loaded[name] = found
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or cut short ({error}); copy or train it again") from error
    wrong += [
        f"{name} holds numbers that are not finite"
        for name, _ in network.named_parameters()
        if name in loaded and not loaded[name].isfinite().all()
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            f"{path}: its tensors are not those that config.yaml beside it describes: {'; '.join(wrong[:3])}{more}; "
            "copy or train it again"
        )
    if checksum is not None and sha256_of(path) != checksum:
        raise CheckpointError(f"{path}: damaged (its checksum is not the one in config.yaml); copy or train it again")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(loaded[name])


def read_provenance(folder: Path) -> dict[str, Any]:
    """The ``provenance.json`` of a policy's folder; empty where there is none.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = folder / "provenance.json"
    if not path.is_file():
        return {}
    try:
        facts = json.loads(read_at_most(path, 1 << 22))
        json.dumps(facts, ensure_ascii=False).encode()  # a lone surrogate cannot be written anywhere
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not readable as JSON: {error}") from error
    return dict(facts) if isinstance(facts, dict) else {}

"""Linear layers that use oneDNN in float32 on a CPU.

torch sends float32 products to MKL, which on CPUs that Intel did not make uses half the width of AVX-512. oneDNN, which
torch ships for lower precisions, uses all of it: it is about twice as fast on an AMD EPYC whose units have that width,
in the same float32 arithmetic. AMD's Zen 4 works in halves of it, so the two are close: there few rows, as in one
position's decision, are MKL's, and so is the gradient of a weight, for which oneDNN copies both of its arguments.
Everywhere else, and under ``torch.compile`` or autocast, this is ``torch.nn.functional.linear``.

The choice follows from the processor alone and is not measured, so that a resumed run computes the same bits.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genpolicy.networks.cpu.dropout import SWITCHED_OFF

_CPUINFO = Path("/proc/cpuinfo")
_MANY_ROWS = 1000
"""Rows from which on oneDNN is used on Zen 4: with those of one position it is slower (``benchmarks/kernels.py``)."""


def _processor() -> str:
    """Maker and family of this processor, among other things, as Linux or Windows says."""
    try:
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()


def _made_by_intel() -> bool:
    return "GenuineIntel" in _processor()


def _is_zen_4() -> bool:
    """AMD's family 25 is Zen 3, which has no AVX-512, and Zen 4."""
    text = _processor()
    return "AuthenticAMD" in text and re.search(r"family[\s:]+25\b", text, re.IGNORECASE) is not None


HAS_ONEDNN = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_has_width = torch.backends.cpu.get_cpu_capability() == "AVX512" and not _made_by_intel()
_is_wider = HAS_ONEDNN and _has_width and not SWITCHED_OFF
_is_halved = _is_zen_4()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias; strides are free."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class _OneDnnLinear(torch.autograd.Function):
    """x weight^T + bias for x [n, I], weight [O, I], bias [O] or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _product(grad, weight.t())
        if ctx.needs_input_grad[1]:
            if _is_halved:
                of_weight = grad.t() @ x
            elif weight.shape[0] < weight.shape[1]:  # oneDNN is faster with the smaller side first
                of_weight = _product(grad.t(), x.t())
            else:
                of_weight = _product(x.t(), grad.t()).t()
        if ctx.needs_input_grad[2]:
            of_bias = grad.sum(0)
        return of_x, of_weight, of_bias


def _takes_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        _is_wider
        and (not _is_halved or x.numel() >= _MANY_ROWS * x.shape[-1])
        and x.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and weight.numel() > 0
        and not torch.is_autocast_enabled("cpu")
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, as ``torch.nn.functional.linear``: x [..., I], weight [O, I], bias [O]."""
    if not _takes_onednn(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _product(x, weight, bias)
    out: Tensor = _OneDnnLinear.apply(x.reshape(-1, x.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], weight.shape[0])


class Linear(nn.Linear):
    """``nn.Linear`` through ``linear``; same weights, same state dict."""

    def forward(self, x: Tensor, varies: bool = False) -> Tensor:
        """[..., I] in, [..., O] out.

        Where the number of rows ``varies`` from call to call, it is torch's own: oneDNN keeps a kernel for each number.
        """
        return F.linear(x, self.weight, self.bias) if varies else linear(x, self.weight, self.bias)

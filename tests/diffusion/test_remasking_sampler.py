"""ReMDM: each step of the sampler has the frequencies of the published posterior."""

import pytest
import torch
from torch import Tensor

from genpolicy.diffusion import Absorbing, make_sampler
from genpolicy.diffusion.samplers.remasking import remasking_sigma

NUM_DRAWS = 40_000


def remasking_posterior(
    xt: Tensor, x0: Tensor, alpha_t: Tensor, alpha_s: Tensor, sigma: Tensor, num_symbols: int
) -> Tensor:
    """q_sigma(x_s | x_t, x_0), [..., K+1], with sigma the probability that a decided token returns to the mask.

    A masked token becomes x_0 with probability (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t).
    """
    masked = xt == num_symbols
    clean = torch.where(masked, (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t), 1 - sigma)
    held = torch.where(masked, x0, xt)
    out = torch.zeros((*clean.shape, num_symbols + 1), dtype=clean.dtype)
    out.scatter_(-1, held.expand(clean.shape)[..., None], clean[..., None])
    out[..., num_symbols] += 1 - clean
    return out


@pytest.mark.parametrize("sigma", ["cap", "rescale"])
@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_a_remasking_step_has_the_frequencies_of_its_posterior(sigma: str, eta: float) -> None:
    process = Absorbing(3, 20, "cosine_maskgit")
    logits = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, 0.5]], dtype=torch.float64)
    sampler = make_sampler("remasking", process, eta=eta, sigma=sigma)
    xt = torch.tensor([[3, 1]]).expand(NUM_DRAWS, -1)
    free = torch.zeros(NUM_DRAWS, 2).bool()
    for t, s in ((20, 15), (12, 11), (3, 0)):
        out = sampler.step(
            logits.expand(NUM_DRAWS, -1, -1), t, s, xt, frozen=free, generator=torch.Generator().manual_seed(t)
        )
        strength = remasking_sigma(sigma, eta, process.alpha[t], process.alpha[s])
        expected = torch.zeros(2, 4).double()
        for x0 in range(3):
            q = remasking_posterior(xt[0], torch.full((2,), x0), process.alpha[t], process.alpha[s], strength, 3)
            expected += q * logits.softmax(-1)[:, x0, None]
        got = torch.nn.functional.one_hot(out.prev_sample, 4).double().mean(0)
        torch.testing.assert_close(got, expected, rtol=0, atol=0.012)

"""diffusers' noise schedulers for training and for sampling, matched or as the published experiment mixed them."""

from __future__ import annotations

from typing import Any

from genpolicy_policy_image.config import ImageConfig

# scaled_linear as Stable Diffusion has it; cosine is Nichol and Dhariwal 2021, arXiv:2102.09672.
_SCHEDULES: dict[str, dict[str, Any]] = {
    "scaled_linear": {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012},
    "cosine": {"beta_schedule": "squaredcos_cap_v2"},
}


def noise_scheduler(config: ImageConfig) -> Any:
    """What noises images in training: timestep i of 0..num_timesteps - 1."""
    from diffusers import DDPMScheduler

    assert config.schedule is not None
    return DDPMScheduler(num_train_timesteps=config.num_timesteps, **_SCHEDULES[config.schedule])


def sampling_scheduler(config: ImageConfig, name: str, num_steps: int, *, matched: bool) -> Any:
    """What a policy draws by, its timesteps set.

    Without ``matched`` it has diffusers' defaults, whatever the images were trained on.
    """
    from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler

    assert config.schedule is not None
    options: dict[str, Any] = {
        "num_train_timesteps": config.num_timesteps,
        "prediction_type": "epsilon" if config.prediction == "eps" else "sample",
    }
    if matched:
        options |= {**_SCHEDULES[config.schedule], "timestep_spacing": "trailing"}
    if name == "dpmsolver++" or (name == "ddim" and matched):
        # DDIM is DPM-Solver++ of first order (Lu et al. 2022, arXiv:2211.01095). diffusers' own steps back by
        # num_timesteps // num_steps wherever the next trailing timestep lies, and so to another noise than it is told.
        options |= {"solver_order": 1 if name == "ddim" else 2, "algorithm_type": "dpmsolver++"}
        # The last step goes to the estimate itself, as that of DDPM does.
        scheduler = DPMSolverMultistepScheduler(**options, final_sigmas_type="zero")
    else:
        kind = DDPMScheduler if name == "ddpm" else DDIMScheduler
        scheduler = kind(**options, clip_sample=not matched)
    scheduler.set_timesteps(num_steps)
    return scheduler

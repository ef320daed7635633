"""The noise schedule as a list of steps, and the formulas of a step (DDPM; edit-friendly inversion).

abar_t is the fraction of the variance at time t that is signal. u is the time that follows t in sampling (u < t)::

    x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) n                          n standard normal
    mean of x_u given x_t and the predicted noise e
        = sqrt(abar_u) x_0' + sqrt(1 - abar_u - v) e                 x_0' = (x_t - sqrt(1 - abar_t) e) / sqrt(abar_t)
    v = (1 - abar_u) / (1 - abar_t) (1 - abar_t / abar_u)                the variance, eta = 1
"""

import math
from typing import NamedTuple

import torch

PREDICTIONS = ("epsilon", "v_prediction")  # a net predicts the noise, or sqrt(abar_t) n - sqrt(1 - abar_t) x_0


class Step(NamedTuple):
    """One step of denoising, from ``time`` to the next smaller time."""

    time: int
    abar: float  # fraction of the variance at ``time`` that is signal
    before: float  # the same fraction after the step; 1 at the last step, so that its variance is exactly 0


def select_steps(abars: list[float], steps: int, skip_ratio: float) -> list[Step]:
    """Return sampling steps in equal strides from the noisiest (999, 994, ... 4 for 200 of 1000). The first of them, a
    fraction ``skip_ratio`` rounded down, are left out. ``abars``: fraction of signal at each time."""
    selected_times = [round(len(abars) * remaining / steps) - 1 for remaining in range(steps, 0, -1)]
    before = [*(abars[time] for time in selected_times[1:]), 1.0]
    all_steps = [Step(time, abars[time], after) for time, after in zip(selected_times, before, strict=True)]
    return all_steps[math.floor(steps * skip_ratio + 1e-9) :]


def add_noise(clean: torch.Tensor, noise: torch.Tensor, abar: float) -> torch.Tensor:
    """Mix a latent and noise so that the fraction ``abar`` of the variance is signal and the remainder is noise."""
    return math.sqrt(abar) * clean + math.sqrt(1 - abar) * noise


def step_variance(step: Step) -> float:
    """Return the variance of the step's result around :func:`step_mean`."""
    return (1 - step.before) / (1 - step.abar) * (1 - step.abar / step.before)


def step_mean(latent: torch.Tensor, predicted: torch.Tensor, step: Step, prediction: str) -> torch.Tensor:
    """Return the mean of the latent after a step. ``latent`` is the latent before the step, and ``predicted`` the net's
    prediction for it, of the type ``prediction`` (:data:`PREDICTIONS`)."""
    signal, noise = math.sqrt(step.abar), math.sqrt(1 - step.abar)
    clean_share, noise_share = math.sqrt(step.before), math.sqrt(max(0.0, 1 - step.before - step_variance(step)))
    if prediction == "epsilon":
        return clean_share / signal * latent + (noise_share - clean_share * noise / signal) * predicted
    return (clean_share * signal + noise_share * noise) * latent + (
        noise_share * signal - clean_share * noise
    ) * predicted

"""Diffusion: prompts and weights per row, soft masks, and blending compared with a plain loop of diffusers."""

import math

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler

import tiny_diffusion as tiny
from cxr.diffusion import folders, nets
from cxr.diffusion.edit import Editing, Sampling, edit_latents, sample_latents
from cxr.diffusion.guidance import PredictionRequest, cell_fractions, cell_mask, mix_by_mask, predict_guided
from cxr.diffusion.schedule import add_noise, select_steps, step_mean, step_variance

PROMPTS = ("edema", "no acute process", "heart normal", "")
GUIDANCE = (4.0, 1.0, 2.5, 3.0)
SHAPE = (4, 4, 8, 8)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> nets.Nets:
    files = tiny.write_radedit(tmp_path_factory.mktemp("radedit"))
    prompts = dict.fromkeys(PROMPTS, "some.key")
    return nets.load_nets(
        folders.make_radedit_layout(files), prompts, nets.NetOptions(torch.float32), torch.device("cpu")
    )


def latents(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed))


def drawing(rows: list[int]):
    """Return a source of noise with a separate generator for each row."""
    made = [torch.Generator().manual_seed(row) for row in rows]
    return lambda: torch.stack([torch.randn(SHAPE[1:], generator=one) for one in made])


def halves(dtype: torch.dtype, rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Edit in the left half, keep in the last quarter."""
    edit, keep = torch.zeros(2, rows, 1, 8, 8, dtype=dtype)
    edit[..., :4], keep[..., 6:] = 1, 1
    return edit, keep


def edited(model: nets.Nets, rows: list[int], masks: tuple, how: Editing) -> torch.Tensor:
    steps = select_steps(model.abars, 5, 0.2)
    with torch.inference_mode():
        return edit_latents(
            latents(1)[rows], *masks, steps, model.prediction, model.predict, drawing(rows), how,
        )  # fmt: skip


def sampled(model: nets.Nets, rows: list[int], mask: torch.Tensor, how: Sampling, predict=None) -> torch.Tensor:
    steps = select_steps(model.abars, 5, 0.2)
    with torch.inference_mode():
        return sample_latents(
            latents(1)[rows], mask, steps, model.prediction, predict or model.predict, drawing(rows), how
        )


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize("inversion", [("", 1.0), ("no acute process", (3.5, 1.0, 2.0, 3.5))])
@pytest.mark.parametrize("soft", [False, True])
def test_an_edit_of_mixed_prompts_is_that_of_each_alone(model, inversion, soft):
    """The results are equal to the last bit."""
    text, weights = inversion
    masks = tuple(latents(seed, 4, 1, 8, 8).sigmoid() for seed in (7, 8)) if soft else halves(torch.bool)
    whole = Editing(PROMPTS, text, GUIDANCE, weights, published_bugs=False)
    together = edited(model, ALL, masks, whole)
    assert len({row.numpy().tobytes() for row in together}) == 4
    for row in ALL:
        one = Editing(
            PROMPTS[row], text, GUIDANCE[row], weights if isinstance(weights, float) else weights[row],
            published_bugs=False,
        )  # fmt: skip
        alone = edited(model, [row], tuple(mask[row : row + 1] for mask in masks), one)
        assert alone.numpy().tobytes() == together[row : row + 1].numpy().tobytes()


@pytest.mark.parametrize("blending", ["before", "after", "guidance"])
def test_a_sampling_of_mixed_prompts_is_that_of_each_alone(model, blending):
    mask = latents(7, 4, 1, 8, 8).sigmoid()
    together = sampled(model, ALL, mask, Sampling(PROMPTS, GUIDANCE, blending, pure=False))
    for row in ALL:
        how = Sampling(PROMPTS[row], GUIDANCE[row], blending, pure=False)
        alone = sampled(model, [row], mask[row : row + 1], how)
        assert alone.numpy().tobytes() == together[row : row + 1].numpy().tobytes()


def test_the_net_is_called_once_with_every_row_and_text_once():
    asked = []

    def predict(latent, time, prompts):
        asked.append((len(latent), prompts))
        each = [prompts] * len(latent) if isinstance(prompts, str) else prompts
        return latent + torch.tensor([*map(len, each)])[:, None]

    def told(*wanted):
        asked.clear()
        return [part.tolist() for part in predict_guided(predict, 5, [PredictionRequest(*each) for each in wanted])]

    latent, other = torch.zeros(2, 3), torch.full((1, 3), 10.0)
    assert told((latent, ["ab", "ab"], [2.0, 2.0])) == [[[4.0] * 3] * 2]
    assert asked == [(4, ("", "", "ab", "ab"))]
    assert told((latent, ["abc", "ab"], (2.0, 1.0))) == [[[6.0] * 3, [2.0] * 3]]
    assert asked == [(4, ("", "", "abc", "ab"))]
    assert told((latent, ("abc", ""), (1.0, 9.0))) == [[[3.0] * 3, [0.0] * 3]]
    assert asked == [(2, ("abc", ""))]
    assert told((latent, "ab", 1.0)) == [[[2.0] * 3] * 2]
    assert asked == [(2, "ab")]
    # what two ask about the same latents is computed once
    assert told((other, "", 1.0), (latent, "abcd", 3.0), (latent, "", 7.0), (latent, "abcd", 1.0)) == [
        [[10.0] * 3], [[12.0] * 3] * 2, [[0.0] * 3] * 2, [[4.0] * 3] * 2,
    ]  # fmt: skip
    assert asked == [(5, ("", "", "", "abcd", "abcd"))]
    with pytest.raises(ValueError, match="3 values for a batch of 2 images"):
        told((latent, ("a", "b", "c"), 2.0))


@pytest.mark.parametrize(("weight", "rows"), [(7.5, 3), (1.0, 2)])
def test_an_edit_calls_the_net_once_a_step(model, weight, rows):
    """Of 4 images: the source's prediction, and the edit's with and without the prompt."""
    asked = []

    def predict(latent, time, prompts):
        asked.append((time, len(latent)))
        return model.predict(latent, time, prompts)

    steps = select_steps(model.abars, 5, 0.2)
    how = Editing("edema", "", weight, 3.5, published_bugs=False)
    edit_latents(latents(1), *halves(torch.bool), steps, "epsilon", predict, drawing(ALL), how)
    times = [step.time for step in steps]
    # at the first step the edit still equals its source; the region in between takes the inversion's prompt
    assert asked == [(times[0], 8), *[(time, 12) for time in times[1:]]]
    asked.clear()
    edit_latents(latents(1), *outside(halves(torch.bool)[0]), steps, "epsilon", predict, drawing(ALL), how)
    assert asked == [(times[0], 8), *[(time, 4 * rows) for time in times[1:]]]
    asked.clear()
    sample_latents(
        latents(1), halves(torch.bool)[0], steps, "epsilon", predict, drawing(ALL),
        Sampling("edema", weight, "after", pure=False),
    )  # fmt: skip
    assert asked == [(time, 8) for time in times]


def outside(edit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep everything that is not edited."""
    return edit, ~edit


@pytest.mark.parametrize("published_bugs", [False, True])
def test_a_soft_mask_of_zeros_and_ones_edits_as_the_hard_one(model, published_bugs):
    how = Editing("edema", "", 3.0, 1.0, published_bugs)
    hard, soft = (edited(model, ALL, halves(dtype), how) for dtype in (torch.bool, torch.float64))
    assert hard.numpy().tobytes() == soft.numpy().tobytes()


@pytest.mark.parametrize("blending", ["before", "after", "guidance"])
def test_a_soft_mask_of_zeros_and_ones_samples_as_the_hard_one(model, blending):
    how = Sampling("edema", 3.0, blending, pure=True)
    hard, soft = (sampled(model, ALL, halves(dtype)[0], how) for dtype in (torch.bool, torch.float32))
    assert hard.numpy().tobytes() == soft.numpy().tobytes()


def test_soft_masks_mix_predictions_and_latents(model):
    """The result is compared with the formulas, written out step by step."""
    steps = select_steps(model.abars, 4, 0.0)
    clean, noises = latents(1).double(), [latents(seed).double() for seed in range(5)]
    edit, keep = (latents(seed, 4, 1, 8, 8).double().sigmoid() for seed in (7, 8))
    edit[..., 0], edit[..., 1], keep[..., 2], keep[..., 3] = 0, 1, 0, 1
    given = iter(noises)
    how = Editing("be well", "so", 2.5, 1.0, published_bugs=False, extent=0.5)
    got = edit_latents(clean, edit, keep, steps, "epsilon", tiny.curved, lambda: next(given), how)
    original = other = add_noise(clean, noises[0], steps[0].abar)
    for number, step in enumerate(steps):
        m, k = (edit, keep) if number < 2 else (torch.ones_like(edit), torch.zeros_like(keep))
        after = add_noise(clean, noises[number + 1], step.before)
        correction = after - step_mean(original, tiny.curved(original, step.time, "so"), step, "epsilon")
        asked = tiny.curved(other, step.time, "") + 2.5 * (
            tiny.curved(other, step.time, "be well") - tiny.curved(other, step.time, "")
        )
        predicted = tiny.curved(other, step.time, "so") + m * (asked - tiny.curved(other, step.time, "so"))
        other = step_mean(other, predicted, step, "epsilon") + correction
        original, other = after, k * after + (1 - k) * other
    np.testing.assert_allclose(got.numpy(), other.numpy(), rtol=1e-7, atol=1e-7)


def looped(clean, mask, noises, guidance, blending, pure, held: int, model) -> torch.Tensor:
    """Run the loop with diffusers' own scheduler: 5 steps, from the second on."""
    scheduler = DDIMScheduler(
        beta_schedule="linear", timestep_spacing="trailing", clip_sample=False, set_alpha_to_one=True
    )
    scheduler.set_timesteps(5)
    times = scheduler.timesteps[1:].tolist()
    alphas = scheduler.alphas_cumprod.double()

    def noised(time: int | None) -> torch.Tensor:
        if time is None:
            return clean
        return alphas[time].sqrt() * clean + (1 - alphas[time]).sqrt() * noises[0]

    latent = noises[0] if pure else noised(times[0])
    for number, time in enumerate(times):
        m = mask if number < held else torch.ones_like(mask)
        if blending == "before":
            latent = m * latent + (1 - m) * noised(time)
        plain, asked = tiny.curved(latent, time, ""), tiny.curved(latent, time, "edema")
        factor = guidance * m if blending == "guidance" else guidance
        noise = noises[min(number + 1, len(noises) - 1)]
        predicted = plain + factor * (asked - plain)
        latent = scheduler.step(predicted, time, latent, eta=1.0, variance_noise=noise).prev_sample
        if blending == "after":
            latent = m * latent + (1 - m) * noised(times[number + 1] if number + 1 < len(times) else None)
    return latent


@pytest.mark.parametrize("extent", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("blending", ["before", "after", "guidance"])
def test_blending_is_that_of_a_plain_loop(model, blending, pure, extent):
    clean, mask = latents(1).double(), latents(7, 4, 1, 8, 8).double().sigmoid()
    mask[..., 0], mask[..., 1] = 0, 1
    noises = [latents(seed).double() for seed in range(4)]
    given = iter(noises)
    got = sample_latents(
        clean, mask, select_steps(model.abars, 5, 0.2), "epsilon", tiny.curved, lambda: next(given),
        Sampling("edema", 4.0, blending, pure, extent=extent),
    )  # fmt: skip
    assert next(given, None) is None  # one noise for the start and one for each step but the last
    told = looped(clean, mask, noises, 4.0, blending, pure, {1.0: 4, 0.5: 2, 0.0: 0}[extent], model)
    # diffusers' steps hold the schedule's fractions in float32
    np.testing.assert_allclose(got.numpy(), told.numpy(), rtol=1e-5, atol=1e-5)


def test_outside_the_mask_blending_after_leaves_the_source(model):
    mask = halves(torch.bool)[0]
    found = sampled(model, ALL, mask, Sampling("edema", 4.0, "after", pure=True))
    assert found[..., 4:].numpy().tobytes() == latents(1)[..., 4:].numpy().tobytes()
    assert (found - latents(1))[..., :4].abs().mean() > 0.1


def test_a_negative_prompt_stands_for_none(model):
    mask = torch.ones(4, 1, 8, 8, dtype=torch.bool)
    plain = sampled(model, ALL, mask, Sampling("edema", 4.0, "guidance", pure=True))
    negative = Sampling("edema", 4.0, "guidance", pure=True, negative="heart normal")
    assert (sampled(model, ALL, mask, negative) - plain).abs().max() > 1e-3
    same = Sampling("edema", 4.0, "guidance", pure=True, negative="edema")
    once = Sampling("edema", 1.0, "guidance", pure=True)
    assert torch.allclose(sampled(model, ALL, mask, same), sampled(model, ALL, mask, once), rtol=1e-4, atol=1e-3)


def test_a_cell_has_the_mean_of_its_pixels():
    region = np.zeros((16, 8))
    region[:8, :4], region[8:, :] = 1.0, 0.25
    assert cell_fractions(region, (2, 1)).tolist() == [[0.5], [0.25]]
    assert cell_mask(region, (2, 1)).tolist() == [[True], [False]]
    assert cell_fractions(region > 0, (2, 1)).tolist() == [[0.5], [1.0]]
    inside, outside = torch.full((3,), 3.0), torch.full((3,), 1.0)
    assert mix_by_mask(torch.tensor([0.0, 0.25, 1.0]), inside, outside).tolist() == [1.0, 1.5, 3.0]


def test_no_number_that_is_none_comes_through_a_mask():
    """NaN outside a mask does not reach the values inside it."""
    broken = torch.tensor([math.nan, 2.0])
    assert mix_by_mask(torch.tensor([0.0, 1.0]), broken, torch.ones(2)).tolist() == [1.0, 2.0]
    assert step_variance(select_steps([0.9, 0.5], 2, 0.0)[-1]) == 0.0

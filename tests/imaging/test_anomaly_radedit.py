"""The engine radedit: its formulas compared with other implementations, masks, files of the true classes, the stage."""

import json
import math
import re
import shutil
import socket
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler
from safetensors.torch import load_file, save_file

import tiny_diffusion as tiny
from conftest import every
from cxr.base import edited_images
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.diffusion import folders, nets
from cxr.diffusion.edit import Editing, edit_latents
from cxr.diffusion.guidance import cell_mask
from cxr.diffusion.schedule import add_noise, select_steps, step_mean, step_variance
from cxr.imaging.anomaly import engine, map_anomalies
from cxr.imaging.anomaly.engine import edit_region
from cxr.imaging.anomaly.radedit import INPUTS, RadEditor, kept_region
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.workflow.engine_files import engine_inputs
from simple_chests import simple_chest, write_inputs

LINEAR = DDIMScheduler(beta_schedule="linear", timestep_spacing="trailing", clip_sample=False, steps_offset=1)
ABARS = LINEAR.alphas_cumprod.double().tolist()
SETTINGS = {"steps": 4, "dtype": "float32"}
PLAIN = Editing("", "", 1.0, 1.0, published_bugs=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    return tiny.write_radedit(tmp_path_factory.mktemp("radedit"))


@pytest.fixture(scope="module")
def stable(tmp_path_factory) -> tuple[Path, object]:
    """A folder that the pipeline's own class saved, and the pipeline."""
    folder = tmp_path_factory.mktemp("stable")
    made = tiny.pipeline(folder / "words")
    made.save_pretrained(folder / "saved")
    return folder / "saved", made


def load(files: dict[str, str], seed: int = 7, **changes) -> RadEditor:
    options = AnomalySettings.from_dict({"engine": "radedit", "radedit": SETTINGS | changes})
    return engine.load_engine("radedit", options, Setup(files=files, seed=seed))


def small_chests(count: int, side: int = 64) -> tuple[list, list, list]:
    """Frames smaller than the stage's, with masks."""
    random = np.random.default_rng(3)
    images = [random.integers(0, 256, (side, side)).astype(np.uint8) for _ in range(count)]
    masks = []
    for number in range(count):
        lung = np.zeros((side, side), bool)
        lung[16:48, 8 : 24 + number] = True
        masks.append({"right lung": lung, "left lung": lung[:, ::-1].copy(), "heart": np.zeros_like(lung)})
    return images, masks, [f"i{number}" for number in range(count)]


# the schedule


@pytest.mark.parametrize("steps", [2, 4, 10, 50, 75, 100, 150, 200, 250, 500, 1000])
def test_times_are_the_schedulers(steps):
    LINEAR.set_timesteps(steps)
    assert [step.time for step in select_steps([0.5] * 1000, steps, 0)] == LINEAR.timesteps.tolist()


def test_skipped_steps_are_the_noisiest():
    assert [step.time for step in select_steps(ABARS, 200, 0.3)] == list(range(699, 0, -5))
    assert len(select_steps(ABARS, 100, 0.29)) == 71  # 100 * 0.29 is 28.999... in floats
    assert len(select_steps(ABARS, 50, 0.0)) == 50
    assert select_steps(ABARS, 50, 1.0) == []
    every = select_steps(ABARS, 50, 0.0)
    assert all(step.before == after.abar for step, after in pairwise(every))
    assert (every[0].time, every[-1].time, every[-1].before) == (999, 19, 1.0)


def test_a_step_is_the_posterior_of_ddpm():
    """The formulas are those of the DDPM paper: the mean as a mixture of x_0 and x_t, the variance as beta tilde."""
    random = np.random.default_rng(0)
    latent, predicted = random.normal(size=(2, 4, 3, 3))
    for step in select_steps(ABARS, 40, 0.0):
        alpha = step.abar / step.before
        signal, noise = np.sqrt(step.abar), np.sqrt(1 - step.abar)
        assert step_variance(step) == pytest.approx((1 - alpha) * (1 - step.before) / (1 - step.abar), abs=1e-15)
        for prediction, clean in {
            "epsilon": (latent - noise * predicted) / signal,
            "v_prediction": signal * latent - noise * predicted,
        }.items():
            expected = np.sqrt(step.before) * (1 - alpha) / (1 - step.abar) * clean
            expected += np.sqrt(alpha) * (1 - step.before) / (1 - step.abar) * latent
            got = step_mean(torch.from_numpy(latent), torch.from_numpy(predicted), step, prediction).numpy()
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    assert step_variance(select_steps(ABARS, 40, 0.0)[-1]) == 0.0


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_a_step_is_the_schedulers(prediction):
    scheduler = DDIMScheduler.from_config(LINEAR.config, prediction_type=prediction)
    scheduler.set_timesteps(50)
    torch.manual_seed(0)
    latent, predicted, noise = torch.randn(3, 1, 4, 5, 5).double()
    for step in select_steps(ABARS, 50, 0.0):
        told = scheduler.step(predicted, step.time, latent, eta=1.0, variance_noise=noise).prev_sample
        got = step_mean(latent, predicted, step, prediction) + math.sqrt(step_variance(step)) * noise
        torch.testing.assert_close(got, told, rtol=1e-4, atol=1e-4)


# the edit


def drawing(seed: int, shape: tuple[int, ...]):
    """Return a source of float64 noise and the list of the noise that it returned."""
    generator, given = torch.Generator().manual_seed(seed), []

    def draw() -> torch.Tensor:
        given.append(torch.randn(shape, generator=generator, dtype=torch.float64))
        return given[-1]

    return draw, given


def zones() -> tuple[torch.Tensor, torch.Tensor]:
    """Edit in the left half, keep in the last quarter, neither between."""
    edit, keep = torch.zeros(2, 2, 1, 8, 8, dtype=torch.bool)
    edit[..., :4], keep[..., 6:] = True, True
    return edit, keep


def reference(clean, edit, keep, steps, noises, how: Editing) -> np.ndarray:
    """Inversion and edit in two passes with stored latents, in numpy from the formulas; ``how`` in the same words."""

    def ask(latent, time, prompt, weight):
        plain = tiny.curved(torch.from_numpy(latent), time, "").numpy()
        return plain + weight * (tiny.curved(torch.from_numpy(latent), time, prompt).numpy() - plain)

    def expected(latent, predicted, step):
        guess = (latent - np.sqrt(1 - step.abar) * predicted) / np.sqrt(step.abar)
        sigma2 = (1 - step.before) / (1 - step.abar) * (1 - step.abar / step.before)
        return np.sqrt(step.before) * guess + np.sqrt(1 - step.before - sigma2) * predicted, np.sqrt(sigma2)

    abars = [steps[0].abar, *(step.before for step in steps)]
    latents = [np.sqrt(a) * clean + np.sqrt(1 - a) * noise for a, noise in zip(abars, noises, strict=True)]
    zs = []
    for number, step in enumerate(steps):
        centre, sigma = expected(
            latents[number], ask(latents[number], step.time, how.invert_prompt, how.invert_guidance), step
        )
        last = number == len(steps) - 1
        zs.append(latents[number + 1] - centre if last else (latents[number + 1] - centre) / sigma)
    if how.published_bugs:
        zs[-1] = np.zeros_like(clean)
    edited = latents[0]
    for number, step in enumerate(steps):
        base = ask(edited, step.time, how.invert_prompt, how.invert_guidance)
        predicted = np.where(edit, ask(edited, step.time, how.prompt, how.guidance), base)
        centre, sigma = expected(edited, predicted, step)
        edited = centre + (1.0 if number == len(steps) - 1 else sigma) * zs[number]
        if how.published_bugs:
            edited = np.where(edit, edited, latents[number])
        else:
            edited = np.where(keep, latents[number + 1], edited)
    return edited


@pytest.mark.parametrize("published_bugs", [False, True])
@pytest.mark.parametrize(("invert_prompt", "invert_guidance"), [("", 1.0), ("was so", 1.0), ("was so", 3.5)])
@pytest.mark.parametrize(("steps", "skip_ratio"), [(2, 0.0), (10, 0.3), (25, 0.7)])
def test_the_edit_is_that_of_two_passes(steps, skip_ratio, invert_prompt, invert_guidance, published_bugs):
    how = Editing("be well", invert_prompt, 2.5, invert_guidance, published_bugs)
    taken = select_steps(ABARS, steps, skip_ratio)
    clean = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (edit, keep), (draw, noises) = zones(), drawing(2, (2, 4, 8, 8))
    got = edit_latents(clean, edit, keep, taken, "epsilon", tiny.curved, draw, how)
    assert len(noises) == len(taken) + 1
    told = reference(clean.numpy(), edit.numpy(), keep.numpy(), taken, [noise.numpy() for noise in noises], how)
    assert np.isfinite(told).all()
    np.testing.assert_allclose(got.numpy(), told, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("prompt", ["", "process"])
@pytest.mark.parametrize(("steps", "skip_ratio"), [(2, 0.0), (8, 0.0), (8, 0.3), (20, 0.75), (5, 1.0)])
def test_the_same_prompt_gives_the_latent_back(files, steps, skip_ratio, prompt):
    """The test uses a true U-Net in float32, over all steps from pure noise to the last one."""
    loaded = load(files, prompt=prompt, invert_prompt=prompt).nets
    clean = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(5)
    edit, keep = torch.ones(2, 1, 8, 8, dtype=torch.bool), torch.zeros(2, 1, 8, 8, dtype=torch.bool)
    how = Editing(prompt, prompt, 1.0, 1.0, published_bugs=False)
    with torch.inference_mode():
        back = edit_latents(
            clean, edit, keep, select_steps(loaded.abars, steps, skip_ratio), loaded.prediction, loaded.predict,
            lambda: torch.randn(clean.shape, generator=generator), how,
        )  # fmt: skip
    assert back.isfinite().all()
    # one rounding of the last sum, whatever the steps: far below the 1e-4 that is asked for
    assert (back - clean).abs().max() <= 2e-6


def edited_zones(steps: int, **how) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return clean and edited latents (2, 4, 8, 8) of :func:`zones`, and the noise of the last time."""
    taken = select_steps(ABARS, steps, 0.3)
    clean = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draw, noises = drawing(2, (2, 4, 8, 8))
    asked = Editing("be well", "", 3.0, 1.0, **{"published_bugs": False} | how)
    return clean, edit_latents(clean, *zones(), taken, "epsilon", tiny.curved, draw, asked), noises[-2]


def test_what_is_kept_stays_and_the_margin_may_follow():
    clean, edited, _ = edited_zones(20)
    assert (edited - clean)[..., 6:].abs().max() < 1e-12
    assert (edited - clean)[..., :4].abs().mean() > 0.1
    # the first cell of the margin sees the edit beside it
    assert (edited - clean)[..., 4].abs().mean() > 1e-3


def test_the_published_bugs_leave_noise_and_do_not_heed_the_margin():
    left = {}
    for steps in (10, 50):
        clean, edited, noise = edited_zones(steps, published_bugs=True)
        last = select_steps(ABARS, steps, 0.3)[-1]
        assert torch.allclose(edited[..., 4:], add_noise(clean, noise, last.abar)[..., 4:], atol=1e-12)
        left[steps] = float((edited - clean)[..., 4:].std())
    assert left[10] > 2 * left[50] > 0.05
    right = edited_zones(50)[1]
    assert (edited - right)[..., :4].abs().max() > 0.1


def test_cells_are_those_at_least_half_inside():
    region = np.zeros((16, 24), bool)
    region[:8, :8] = True
    region[:8, 8:12] = True
    region[:8, 16:20] = True
    region[0, 16] = False
    region[15, 23] = True
    assert cell_mask(region, (2, 3)).tolist() == [[True, True, False], [False, False, False]]


def test_the_margin_is_a_distance():
    region = np.zeros((9, 9), bool)
    region[4, 4] = True
    y, x = np.mgrid[:9, :9] - 4
    for margin in (0, 1, 3):
        assert (kept_region(region, margin) == (np.hypot(y, x) > margin)).all()
    assert kept_region(np.zeros((3, 3), bool), 50).all()


# the files


def test_published_parts_are_read_whole(files):
    saved = load_file(Path(files["radedit"]) / "unet" / "diffusion_pytorch_model.safetensors")
    loaded = load(files).nets
    held = loaded.unet.state_dict()
    assert saved.keys() == held.keys()
    assert all(torch.equal(saved[name], held[name]) for name in saved)
    assert loaded.vae.config.scaling_factor == 0.13025
    assert loaded.prediction == "epsilon"
    betas = np.linspace(1e-4, 0.02, 1000)
    np.testing.assert_allclose(loaded.abars, np.cumprod(1 - betas), rtol=2e-5)


def test_text_states_are_those_of_the_published_class(files):
    """The reference is the masked language model's own encoder, padded to 128 tokens with full attention."""
    loaded = load(files, prompt="No acute cardiopulmonary process").nets
    model = tiny.bert()
    ids = torch.zeros(1, 128, dtype=torch.long)
    ids[0, :7] = torch.tensor([2, 5, 6, 7, 8, 9, 3])
    with torch.inference_mode():
        told = model.bert(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    assert loaded.states.keys() == {"No acute cardiopulmonary process", ""}
    torch.testing.assert_close(loaded.states["No acute cardiopulmonary process"], told, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("variant", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_half_precision_and_shards_are_read(tmp_path, variant, dtype):
    net = tiny.unet().to(dtype)
    net.save_pretrained(tmp_path, variant=variant, max_shard_size="20KB")
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    assert all(variant in name for name in shards)
    held = folders.load_net(tmp_path, "unet", torch.float32, "").state_dict()
    assert all(torch.equal(value.float(), held[name]) for name, value in net.state_dict().items())
    # beside them full precision comes first
    whole = tiny.unet(seed=9)
    whole.save_pretrained(tmp_path / "whole")
    shutil.copy(tmp_path / "whole" / "diffusion_pytorch_model.safetensors", tmp_path)
    assert torch.equal(folders.load_net(tmp_path, "unet", torch.float32, "").conv_in.weight, whole.conv_in.weight)
    (tmp_path / "diffusion_pytorch_model.safetensors").unlink()
    (tmp_path / shards[0]).unlink()
    with pytest.raises(UserError, match=r"holds only some of its weights: again$"):
        folders.load_net(tmp_path, "unet", torch.float32, "again")


def test_one_whole_set_of_files_is_enough(tmp_path):
    """The folder holds one file, shards of the same weights, an incomplete other set, and the other file name."""
    folder = tmp_path / "unet"
    tiny.unet().save_pretrained(folder)
    held = load_file(folder / "diffusion_pytorch_model.safetensors")
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    tiny.unet(seed=4).save_pretrained(folder, max_shard_size="20KB")
    shards = sorted(folder.glob("*-of-*"))
    assert len(shards) > 2
    shutil.copy(shards[0], folder / "diffusion_pytorch_model-00001-of-00099.safetensors")
    assert folders.find_weight_files(folder, "") == shards
    save_file(held, folder / "diffusion_pytorch_model.safetensors")
    shutil.copy(shards[0], folder / "model.safetensors")
    found = folders.load_tensors(folder, "")
    assert found.keys() == held.keys()
    assert all(torch.equal(found[name], value) for name, value in held.items())
    shards[-1].unlink()
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="holds only some of its weights: again"):
        folders.find_weight_files(folder, "again")


def test_an_old_autoencoder_is_read(tmp_path):
    net = tiny.vae()
    net.save_pretrained(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    old = {new: name for name, new in folders.OLD_NAMES.items()}
    tensors = {re.sub(r"\.to_(q|k|v|out\.0)\.", lambda found: old[found[0]], n): v for n, v in load_file(path).items()}
    assert "decoder.mid_block.attentions.0.proj_attn.weight" in tensors
    save_file(tensors, path)
    held = folders.load_net(tmp_path, "vae", torch.float32, "").state_dict()
    assert all(torch.equal(value, held[name]) for name, value in net.state_dict().items())


def test_a_stable_diffusion_is_what_its_pipeline_is(stable):
    folder, pipeline = stable
    prompt = "no acute process"
    loaded = load({"folder": str(folder)}, prompt=prompt).nets
    with torch.inference_mode():
        told = pipeline.encode_prompt(prompt, "cpu", 1, True, negative_prompt="")
    torch.testing.assert_close(loaded.states[prompt], told[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(loaded.states[""], told[1], rtol=0, atol=1e-6)
    assert loaded.abars == pipeline.scheduler.alphas_cumprod.tolist()
    assert all(torch.equal(value, loaded.unet.state_dict()[name]) for name, value in pipeline.unet.state_dict().items())
    assert loaded.vae.config.scaling_factor == 0.13025
    # files of transformers before 5 hold the encoder under a prefix
    path = folder / "text_encoder" / "model.safetensors"
    plain = load_file(path)
    try:
        save_file({f"text_model.{name}": value for name, value in plain.items()}, path)
        again = load({"folder": str(folder)}, prompt=prompt).nets
    finally:
        save_file(plain, path)
    assert torch.equal(loaded.states[prompt], again.states[prompt])


def test_a_velocity_model_is_edited_too(tmp_path):
    noise = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "clip_sample": False}
    made = tiny.pipeline(tmp_path / "words", **noise)
    made.save_pretrained(tmp_path / "saved")
    editor = load({"folder": str(tmp_path / "saved")}, skip_ratio=0.0)
    assert editor.nets.prediction == "v_prediction"
    images, masks, names = small_chests(1)
    edited = editor.edit_batch(images, masks, names)[0]
    assert np.isfinite(edited).all()


def test_the_autoencoders_two_ways(files):
    loaded, net = load(files).nets, tiny.vae()
    picture = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        latents = loaded.encode(picture)
        moments = net.quant_conv(net.encoder(picture))
        torch.testing.assert_close(latents, moments[:, :4] * 0.13025, rtol=1e-5, atol=2e-5)
        back = net.decoder(net.post_quant_conv(latents / 0.13025)).clamp(-1, 1)
        torch.testing.assert_close(loaded.decode(latents), back, rtol=1e-5, atol=2e-5)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(path: Path, **change) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def drop_tensor(path: Path) -> None:
    tensors = load_file(path)
    del tensors[sorted(tensors)[0]]
    save_file(tensors, path)


def only_pickles(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.rename(path.with_suffix(".bin"))


AGAIN = r"(?::|: reword the prompt, or) delete \S+ and run snakemake weights again \(docs/how-to/models\.md\)$"
WRONG = {
    "truncated": (
        lambda at: truncate(at / "radedit/unet/diffusion_pytorch_model.safetensors"),
        r"unet/diffusion_pytorch_model\.safetensors is damaged or not a safetensors file",
    ),
    "html": (
        lambda at: (at / "sdxl_vae/diffusion_pytorch_model.safetensors").write_text("<html>Log in</html>"),
        r"sdxl_vae/diffusion_pytorch_model\.safetensors is damaged or not a safetensors file",
    ),
    "missing tensor": (
        lambda at: drop_tensor(at / "radedit/unet/diffusion_pytorch_model.safetensors"),
        r"unet holds weights that do not fit the net \(it lacks conv_in\.bias\)",
    ),
    "another shape": (
        lambda at: rewrite(at / "radedit/unet/config.json", cross_attention_dim=24),
        r"unet holds weights that do not fit the net \(the shape differs for \S*attn2\S* and 7 more"
        r" of \d+\)",
    ),
    "another class": (
        lambda at: rewrite(at / "radedit/unet/config.json", _class_name="UNet2DModel"),
        r"unet/config\.json describes a UNet2DModel, not a UNet2DConditionModel",
    ),
    "nonsense": (
        lambda at: rewrite(at / "radedit/unet/config.json", down_block_types=["NoBlock", "NoBlock"]),
        r"unet/config\.json does not define a UNet2DConditionModel \(\w+\)",
    ),
    "no config": (lambda at: (at / "sdxl_vae/config.json").unlink(), r"there is no file \S+sdxl_vae/config\.json"),
    "a file for a folder": (
        lambda at: (shutil.rmtree(at / "sdxl_vae"), (at / "sdxl_vae").touch()),
        r"there is no file \S+sdxl_vae/config\.json",
    ),
    "no list of classes": (
        lambda at: rewrite(at / "biovil_t/config.json", architectures=3),
        r"biovil_t/config\.json describes a 3, not a CXRBertModel",
    ),
    "cut config": (lambda at: (at / "sdxl_vae/config.json").write_text('{"a": '), r"sdxl_vae/config\.json is damaged"),
    "pickles": (lambda at: only_pickles(at / "biovil_t"), r"biovil_t holds no weights as safetensors"),
    "another text class": (
        lambda at: rewrite(at / "biovil_t/config.json", architectures=["T5EncoderModel"]),
        r"biovil_t/config\.json describes a T5EncoderModel, not a CXRBertModel",
    ),
    "no words": (
        lambda at: (at / "biovil_t/vocab.txt").unlink(),
        r"biovil_t lacks the tokenizer's tokenizer\.json or vocab\.txt",
    ),
    "more words": (
        lambda at: (at / "biovil_t/vocab.txt").write_text("\n".join(map(str, range(14)))),
        r"biovil_t holds a tokenizer of \d+ words for a text encoder of 13",
    ),
    "cut words": (
        lambda at: (at / "biovil_t/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nno\n"),
        r"biovil_t holds a tokenizer that does not know a word of anomaly\.radedit\.prompt",
    ),
    "other channels": (
        lambda at: tiny.unet(in_channels=9).save_pretrained(at / "radedit/unet"),
        r"unet expects 9 latent channels and text states of size 16, but \S+ has 4 channels and \S+ has size 16",
    ),
    "other states": (
        lambda at: tiny.unet(cross_attention_dim=24).save_pretrained(at / "radedit/unet"),
        r"unet expects 4 latent channels and text states of size 24, but \S+ has 4 channels and \S+ has size 16",
    ),
}


@pytest.mark.parametrize("case", every(4, WRONG))
def test_wrong_weights_are_told_in_a_sentence(tmp_path, case):
    files = tiny.write_radedit(tmp_path)
    spoil, told = WRONG[case]
    spoil(tmp_path)
    with pytest.raises(UserError, match=told + AGAIN) as caught:
        load(files)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "entry", "told"),
    [
        ("unet", ["diffusers", "UNet2DModel"], "names UNet2DModel for unet, and only UNet2DConditionModel can be used"),
        ("text_encoder", ["os", "system"], "names system for text_encoder, and only BertModel or CXRBertModel or CLIP"),
        ("tokenizer", None, "names None for tokenizer, and only BertTokenizer"),
    ],
)
def test_a_folder_with_other_classes_is_refused(tmp_path, stable, part, entry, told):
    (tmp_path / "model_index.json").write_text((stable[0] / "model_index.json").read_text())
    rewrite(tmp_path / "model_index.json", **{part: entry})
    with pytest.raises(UserError, match=told + r".*: correct the folder or anomaly\.radedit\.model"):
        load({"folder": str(tmp_path)})
    with pytest.raises(UserError, match=r"there is no file \S+model_index\.json: correct the folder"):
        load({"folder": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    ("change", "told"),
    [({"prediction_type": "sample"}, "has prediction_type 'sample'"), ({"beta_schedule": "x"}, "an invalid noise sch")],
)
def test_another_noise_schedule_is_refused(stable, change, told):
    layout = folders.read_stable_diffusion_layout(stable[0], "key")
    with pytest.raises(UserError, match=told):
        nets.read_noise_schedule(layout._replace(noise=layout.noise | change))


def test_a_prompt_that_is_too_long_is_named(files):
    with pytest.raises(UserError, match=r"^anomaly\.radedit\.invert_prompt has 132 tokens, but the model reads only"):
        load(files, invert_prompt="heart " * 130)


def test_inputs_are_the_weights_or_the_folder(tmp_path):
    assert engine_inputs("anomaly", "radedit", {"radedit": SETTINGS}) == INPUTS
    assert engine_inputs("anomaly", "radedit", {"radedit": SETTINGS | {"model": str(tmp_path)}}) == {
        "folder": str(tmp_path)
    }
    with pytest.raises(UserError, match="there is no folder"):
        engine_inputs("anomaly", "radedit", {"radedit": SETTINGS | {"model": str(tmp_path / "none")}})


# the engine


@pytest.mark.parametrize("dtype", every(2, ["float32", "bfloat16"]))
def test_no_picture_depends_on_its_company(files, dtype):
    """Results are equal to the last bit for a batch of eight, in another order, and one by one."""
    editor = load(files, dtype=dtype, keep_margin=6, skip_ratio=0.0)
    images, masks, names = small_chests(8)
    together = editor.edit_batch(images, masks, names)
    back = editor.edit_batch(images[::-1], masks[::-1], names[::-1])[::-1]
    for number, edited in enumerate(together):
        alone = editor.edit_batch([images[number]], [masks[number]], [names[number]])[0]
        assert edited.dtype == np.float32
        assert np.isfinite(edited).all()
        assert edited.tobytes() == alone.tobytes() == back[number].tobytes()


def test_noise_is_the_images_own(files):
    images, masks, _ = small_chests(1)
    editor, other = load(files), load(files, seed=8)
    one = editor.edit_batch(images * 2, masks * 2, ["a", "b"])
    assert (one[0] != one[1]).any()
    assert (one[0] == load(files).edit_batch(images, masks, ["a"])[0]).all()
    assert (one[0] != other.edit_batch(images, masks, ["a"])[0]).any()


def test_each_setting_counts(files):
    images, masks, names = small_chests(1)
    plain = load(files).edit_batch(images, masks, names)[0]
    for change in (
        {"prompt": "heart normal"},
        {"prompt": "edema", "invert_prompt": "no acute process"},
        {"guidance": 2.0},
        {"skip_ratio": 0.5},
        {"steps": 5},
        {"keep_margin": 20},
        {"dtype": "bfloat16"},
        {"published_bugs": True},
    ):
        assert (load(files, **change).edit_batch(images, masks, names)[0] != plain).any(), change
    two = [load(files, invert_prompt="edema", invert_guidance=weight) for weight in (1.0, 3.5)]
    assert np.ptp([editor.edit_batch(images, masks, names)[0] for editor in two], axis=0).max() > 0


def test_without_a_step_the_autoencoder_alone_is_left(files):
    images, masks, names = small_chests(1)
    editor = load(files, skip_ratio=1.0)
    with torch.inference_mode():
        picture = torch.from_numpy(images[0])[None, None].float().expand(1, 3, 64, 64) / 127.5 - 1
        seen = editor.nets.decode(editor.nets.encode(picture))[0].mean(0)
    np.testing.assert_allclose(editor.edit_batch(images, masks, names)[0], (seen + 1) * 127.5, atol=1e-3)


def test_the_prompt_holds_in_the_region_alone(files):
    """Decoded latents equal those of an empty edit outside the region, and differ in every cell inside."""
    images, masks, names = small_chests(1, side=128)
    masks[0]["right lung"][16:48, 8:28] = True  # to the middle of a cell, which is edited then
    editor = load(files, steps=6)
    nowhere = [{label: np.zeros_like(mask) for label, mask in masks[0].items()}]
    seen = []
    decode = nets.Nets.decode

    class Listening(nets.Nets):
        def decode(self, latents):
            seen.append(latents.clone())
            return decode(self, latents)

    editor.nets = Listening(**vars(editor.nets))
    editor.edit_batch(images, masks, names)
    editor.edit_batch(images, nowhere, names)
    inside = torch.from_numpy(cell_mask(edit_region(masks[0]), (16, 16)))
    difference = (seen[0] - seen[1])[0].abs().amax(0)
    assert difference[~inside].max() < 1e-6
    assert difference[inside].min() > 1e-5


def test_nothing_goes_to_the_network(files, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert isinstance(load(files), RadEditor)


def test_the_stage_keeps_every_pixel_outside_lungs_and_heart(files, tmp_path):
    chests = {f"i{seed}": simple_chest(seed) for seed in range(3)}
    inputs = write_inputs(tmp_path, chests)
    options = AnomalySettings.from_dict({"engine": "radedit", "radedit": SETTINGS | {"steps": 2}})
    outputs = []
    for batch in (1, 3):
        output, excluded = tmp_path / f"{batch}.h5", tmp_path / f"{batch}.parquet"
        map_anomalies.run_shard(
            **inputs, output=output, excluded=excluded, options=options, attrs={"stage": "anomaly"}, threads=1,
            compute={"device": "cpu", "batch": batch, "gpus": 0}, **files,
        )  # fmt: skip
        assert read_table(excluded).is_empty()
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
    with Shard(output) as shard, Shard(inputs["frames"]) as frames:
        assert shard.ids == ["i0", "i1", "i2"]
        for name, (image, masks) in chests.items():
            edited, anomaly, region = (
                edited_images.read_edited_image(shard, frames, name),
                shard.get("anomaly", name),
                edit_region(masks),
            )
            assert (edited[~region] == image[~region]).all()
            assert (edited[region] != image[region]).mean() > 0.5
            assert (anomaly == np.maximum(image.astype(int) - edited, 0)).all()

"""Editing with diffusion models: tiny ones of the published formats, on a CPU."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionInpaintPipeline
from PIL import Image

from conftest import every
from cxr.base.engines import Setup
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.semisyn.editing import diffusion, edit_images, radedit
from cxr.semisyn.editing.edit_images import soft_mask
from cxr.semisyn.editing.engine import BoxTooSmall, Job
from cxr.semisyn.editing.models import EditBatch
from cxr.semisyn.editing.radedit import INVERT_GUIDANCE
from cxr.semisyn.editing.settings import EditingConfig, EditingSettings
from cxr.workflow.params import stage_options
from cxr.workflow.plan_semisyn import SemisynPlan
from cxr.workflow.settings import read
from tiny_diffusion import pipeline, write_radedit

WORDS = frozenset({"edema", "heart", "no acute process", ""})
ENGINE_SETTINGS = {
    name: EditingSettings().as_dict().get(name, {}) | {"steps": 6, "dtype": "float32", "autoencoder": "float32"}
    for name in ("radedit", "diffusion")
}
BOXES = np.array([[100.0, 120, 260, 300]])
SHAPE = (512, 512)


@pytest.fixture(scope="module")
def editors(tmp_path_factory) -> dict[str, object]:
    folder: Path = tmp_path_factory.mktemp("models")
    pipeline(folder / "words").save_pretrained(folder / "roentgen")
    files = {"radedit": write_radedit(folder), "diffusion": {"folder": str(folder / "roentgen")}}
    modules = {"radedit": radedit, "diffusion": diffusion}
    return {
        name: module.load(None, Setup(ENGINE_SETTINGS[name], files[name], "cpu", 4), WORDS)
        for name, module in modules.items()
    }


def job(number: int = 1, prompt: str = "edema", boxes: np.ndarray = BOXES, **config: object) -> Job:
    told = EditingConfig(**config).as_dict()
    mask = soft_mask(boxes, SHAPE, told["blur"])
    return Job(f"edema-{number:06d}", "edema", prompt, boxes, ("right",), None, mask, number, told)


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SHAPE).astype(np.uint8)


def latents_of(editor: object, image: np.ndarray) -> torch.Tensor:
    with torch.inference_mode():
        return editor.nets.encode((torch.from_numpy(image).float()[None, None] / 127.5 - 1).expand(-1, 3, -1, -1))


def decoded(editor: object, image: np.ndarray) -> np.ndarray:
    """The picture after the autoencoder alone."""
    with torch.inference_mode():
        clean = latents_of(editor, image)
        return ((editor.nets.decode(clean).mean(dim=1) + 1) * 127.5).numpy()[0]


@pytest.mark.parametrize("name", every(2, ["diffusion", "radedit"]))
def test_a_job_has_the_same_image_alone_and_in_a_mixed_batch(editors, name):
    editor = editors[name]
    jobs = [
        job(1, engine=name),
        job(2, "heart", engine=name, guidance=9.0),
        job(3, engine=name, negative="no acute process"),
        job(4, engine=name, extent=0.5, blur="gauss_r1"),
    ]
    images = [picture(number) for number in range(4)]
    together = editor.edit_batch(images, [{}] * 4, jobs)
    for image, one, found in zip(images, jobs, together, strict=True):
        np.testing.assert_array_equal(editor.edit_batch([image], [{}], [one])[0].image, found.image)
    assert len({found.image.tobytes() for found in together}) == 4


def test_with_the_prompt_of_the_inversion_radedit_returns_the_source(editors):
    editor = editors["radedit"]
    weight = INVERT_GUIDANCE
    same = job(1, "heart", engine="radedit", negative="heart", guidance=weight)
    found = editor.edit_batch([picture(1)], [{}], [same])[0].image
    assert np.abs(found - decoded(editor, picture(1))).max() <= 1
    other = job(1, "edema", engine="radedit", negative="heart", guidance=weight)
    assert np.abs(editor.edit_batch([picture(1)], [{}], [other])[0].image - found).max() > 1


def test_nothing_is_edited_where_the_mask_is_empty(editors):
    editor = editors["radedit"]
    asked = job(1, engine="radedit")
    empty = replace(asked, mask=np.zeros(SHAPE, np.float32))
    found = editor.edit_batch([picture(1)], [{}], [empty])[0].image
    np.testing.assert_allclose(found, decoded(editor, picture(1)), atol=1)


@pytest.mark.parametrize("name", ["radedit", "diffusion"])
def test_a_mask_that_is_dropped_early_lets_the_rest_follow(editors, name):
    editor = editors[name]
    clean = latents_of(editor, picture(1))
    outside = torch.ones(64, 64, dtype=torch.bool)
    outside[15:38, 12:33] = False
    changes = []
    for extent in (1.0, 0.5):
        with torch.inference_mode():
            rows = EditBatch(clean, [job(1, engine=name, extent=extent)], editor.nets.device)
            changes.append((editor.edit_latents(rows) - clean)[0].abs().amax(dim=0))
    assert changes[0][outside].max() < 1e-5  # the source's own latents to the end
    assert changes[0][~outside].max() > 0.1
    assert changes[1][outside].max() > 0.01


@pytest.mark.parametrize("name", ["radedit", "diffusion"])
def test_a_box_without_a_cell_is_refused(editors, name):
    tiny = np.array([[100.0, 120, 260, 300], [100.0, 100, 104, 103]])
    with pytest.raises(BoxTooSmall, match="covers no cell of the model's 64 x 64 grid"):
        editors[name].edit_batch([picture(1)], [{}], [job(1, boxes=tiny, engine=name)])


def test_counted_evaluations_of_the_net(editors, monkeypatch):
    """RadEdit: source and edit, without and with a prompt, in one call a step; the skipped steps are not run."""
    editor = editors["radedit"]
    seen: list[tuple[int, int]] = []
    inner = type(editor.nets).predict

    def predict(self, latents, time, prompts):
        seen.append((time, len(latents)))
        return inner(self, latents, time, prompts)

    monkeypatch.setattr(type(editor.nets), "predict", predict)
    editor.edit_batch([picture(1), picture(2)], [{}] * 2, [job(number, engine="radedit") for number in (1, 2)])
    steps = 6 - int(6 * 0.3)
    assert len({time for time, _ in seen}) == len(seen) == steps
    # the source has no prompt: one row an image; the edit: without and with its prompt
    assert [rows for _, rows in seen] == [3 * 2] * steps


SHARED = (
    {"engine": "radedit"},
    {"engine": "radedit", "blur": "gauss_r1"},
    {"engine": "radedit", "guidance": 12.0},
    {"engine": "radedit", "blur": "ggauss_b4"},
)
"""Four configurations that differ in prompt, mask or guidance alone."""


@pytest.mark.parametrize(("negative", "most"), [("", 0.75), ("no acute process", 0.75)])
@pytest.mark.slow
def test_configurations_of_one_job_share_the_sources_side(editors, monkeypatch, negative, most):
    """The same bytes as one configuration at a time, with at most three quarters of the net's rows."""
    editor = editors["radedit"]
    rows: list[int] = []
    inner = type(editor.nets).predict

    def predict(self, latents, time, prompts):
        rows.append(len(latents))
        return inner(self, latents, time, prompts)

    monkeypatch.setattr(type(editor.nets), "predict", predict)
    jobs = [
        job(number, prompt, negative=negative, **config)
        for number in (1, 2)
        for config, prompt in zip(SHARED, ("edema", "edema", "edema", "heart"), strict=True)
    ]
    images = [picture(one.seed) for one in jobs]
    alone = [editor.edit_batch([image], [{}], [one])[0].image for image, one in zip(images, jobs, strict=True)]
    separate, rows[:] = sum(rows), []
    together = editor.edit_batch(images, [{}] * len(jobs), jobs)
    assert sum(rows) <= most * separate
    for one, found in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, found.image)
    assert len({found.tobytes() for found in alone}) == len(jobs)


CONFIGS = {f"c{number}": EditingConfig(**told) for number, told in enumerate(SHARED)}


@pytest.mark.slow
def test_configurations_of_one_job_file_have_the_bytes_that_each_has_alone(editors, tmp_path, monkeypatch):
    """The stage: two images, one of which has a box without a cell, under four configurations."""
    loaded = SimpleNamespace(load=lambda *_: editors["radedit"])
    monkeypatch.setattr(edit_images, "engine_module", lambda *_: loaded)
    monkeypatch.setattr(edit_images, "VISIBLE", 0.5)
    masks = np.zeros((3, *SHAPE), bool)
    masks[0, 100:400, 60:230], masks[1, 100:400, 290:460], masks[2, 280:400, 200:320] = True, True, True
    with ShardWriter(tmp_path / "frames.h5", pictures=("image",)) as frames:
        for name in ("i0", "i1"):
            back = {"to_original": np.eye(2, 3), "original_shape": np.array(SHAPE, np.int32)}
            frames.append(name, image=picture(int(name[1])), **back)
    with ShardWriter(tmp_path / "organs.h5", labels=("right lung", "left lung", "heart")) as organs:
        for name in ("i0", "i1"):
            organs.append(name, mask=masks)
    jobs = [(f"edema-{at:06d}", "edema", at, f"i{at}", "00", "edema", "heart", True) for at in range(2)]
    columns = ["job_id", "finding", "index", "image_id", "shard", "prompt", "class_prompt", "trial"]
    write_table(tmp_path / "plan.parquet", pl.DataFrame(jobs, schema=columns, orient="row"))
    placed = [("edema-000000", "right", *BOXES[0], None), ("edema-000001", "right", 100.0, 100.0, 104.0, 103.0, None)]
    kinds = {"job_id": pl.String, "side": pl.String} | dict.fromkeys(("x1", "y1", "x2", "y2", "ctr_to"), pl.Float64)
    write_table(tmp_path / "placed.parquet", pl.DataFrame(placed, schema=kinds, orient="row"))
    given = {name: str(tmp_path / f"{name}.parquet") for name in ("plan", "placed")}
    given |= {name: str(tmp_path / f"{name}.h5") for name in ("frames", "organs")}
    given |= {"shard": "00", "threads": 1, "compute": {"device": "cpu"}}
    told = {name: each.as_dict() for name, each in CONFIGS.items()}
    how = {"configs": told, "choice": {}, "max_leak": 1.0, "seed": 1, "findings": ["edema"]}
    options = edit_images.EditingOptions(engine="radedit", engine_settings={}, **how)
    endings = ("h5", "boxes.parquet", "excluded.parquet")

    def paths(folder: str, config: str) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        return [str(tmp_path / folder / f"{config}.{ending}") for ending in endings]

    for config in told:
        output, boxes, excluded = paths("alone", config)
        edit_images.run_shard(
            output=output, boxes=boxes, excluded=excluded, config=config, options=options,
            attrs={"stage": "semisyn_editing_radedit"}, **given,
        )  # fmt: skip
    output, boxes, excluded = (list(part) for part in zip(*(paths("together", config) for config in told), strict=True))
    edit_images.run_shard(
        output=output, boxes=boxes, excluded=excluded, together=list(told), options=options,
        attrs={"stage": "semisyn_editing_radedit_together0"}, **given,
    )  # fmt: skip
    for config in told:
        for one, other in zip(paths("alone", config), paths("together", config), strict=True):
            assert Path(one).read_bytes() == Path(other).read_bytes(), other
        assert read_table(paths("together", config)[2])["reason"].to_list() == ["no_cell"]
        with Shard(paths("together", config)[0]) as shard:
            assert shard.ids == ["edema-000000"]


def test_only_configurations_with_the_same_inversion_are_edited_together(tmp_path):
    names = {f"r{at}": {"engine": "radedit", "guidance": float(at)} for at in range(1, 11)}
    more = {"early": {"engine": "radedit", "extent": 0.9}, "sd": {"engine": "diffusion"}, "sd2": {"engine": "diffusion",
            "guidance": 2.0}, "lite": {}}  # fmt: skip
    editing = {"configs": names | more, "diffusion": {"model": str(tmp_path)}}
    given = read({"semisyn": {"editing": editing, "selection": {"configs": [*names, *more]}}}, [])
    plan = SemisynPlan(given, stage_options(given), ["00"])
    assert plan.editing.groups == {
        "diffusion": [], "lite": [], "radedit": [[f"r{at}" for at in range(1, 9)], ["r9", "r10"]],
    }  # fmt: skip
    alone = re.compile(plan.editing.ungrouped_pattern("radedit"))
    assert all(alone.match(f"{name}/00") for name in ("early", "chosen", "r11"))
    assert not any(alone.match(f"{name}/00") for name in names)


class RecordedNets(DDIMScheduler):
    """DDIM's steps at eta 1, with noise that is given."""

    def step(self, predicted, time, latent, **_):
        noise = next(self.noises, torch.zeros_like(latent))  # the last step has none
        return super().step(predicted, time, latent, eta=1.0, variance_noise=noise)


def test_with_a_mask_of_ones_masked_guidance_is_diffusers_own_inpainting(tmp_path):
    whole = pipeline(tmp_path / "words")
    whole.save_pretrained(tmp_path / "roentgen")
    engine_settings = ENGINE_SETTINGS["diffusion"] | {
        "guidance": 4.0,
        "steps": 5,
    }  # of 1000; diffusers rounds the time after a step otherwise
    editor = diffusion.load(None, Setup(engine_settings, {"folder": str(tmp_path / "roentgen")}, "cpu", 1), WORDS)
    clean = latents_of(editor, picture(5))
    noises = [torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)) for seed in range(6)]
    whole_picture = np.array([[0.0, 0.0, 512.0, 512.0]])
    rows = EditBatch(
        clean, [job(1, "edema", whole_picture, engine="diffusion", blending="guidance")], torch.device("cpu")
    )
    assert rows.mask.all()
    rows.draw = iter(noises).__next__
    with torch.inference_mode():
        ours = editor.edit_latents(rows)
    ends = {"timestep_spacing": "trailing", "clip_sample": False, "set_alpha_to_one": True}
    scheduler = RecordedNets.from_config(whole.scheduler.config, **ends)
    scheduler.noises = iter(noises[1:])
    parts = {name: part for name, part in whole.components.items() if name != "scheduler"}
    inpainting = StableDiffusionInpaintPipeline(**parts, scheduler=scheduler, requires_safety_checker=False)
    inpainting.set_progress_bar_config(disable=True)
    grey = Image.fromarray(picture(5)).convert("RGB")
    theirs = inpainting(
        "edema", image=grey, mask_image=Image.new("L", grey.size, 255), height=512, width=512, strength=1.0,
        num_inference_steps=5, guidance_scale=4.0, latents=noises[0], output_type="latent",
    ).images  # fmt: skip
    assert (ours - clean).abs().max() > 1
    # diffusers' steps hold the schedule's fractions in float32; latents reach 15
    # values of up to 60; the sums differ in their order, and by how much depends on the processor
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=5e-3, atol=5e-2)

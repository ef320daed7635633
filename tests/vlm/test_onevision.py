"""LLaVA-OneVision: tokens of a picture, names of its tensors, and a tuning that is killed and resumed."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlavaOnevisionConfig
from transformers.models.llava_onevision.modeling_llava_onevision import image_size_to_num_patches
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from cxr.base.errors import UserError
from cxr.vlm import models
from cxr.vlm.families import onevision
from cxr.vlm.families.onevision import Tiling
from cxr.vlm.models import load_model, load_run, make_tiny, write_model
from cxr.vlm.tuning import fit
from vlm_runs import OPTIONS, contents, data, recipe, tune

PUBLISHED = Tiling(LlavaOnevisionConfig().image_grid_pinpoints, 384, 27, 9)
"""Of the models of 0.5 and 7 billion values: SigLIP's tiles of 384 px in patches of 14."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("onevision")
    make_tiny("onevision", path, ["where is it? [0.1, 0.2]"], 112, 5)
    return path


def counted(tiling: Tiling, height: int, width: int) -> int:
    """The library's own count, whose processor cannot be made without torchvision."""
    held = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=list(tiling.pinpoints)), num_image_tokens=tiling.cells**2,
        vision_aspect_ratio=f"anyres_max_{tiling.most}",
    )  # fmt: skip
    held._get_unpadded_features = LlavaOnevisionProcessor._get_unpadded_features.__get__(held)
    return LlavaOnevisionProcessor._get_number_of_features(held, height, width, tiling.side, tiling.side)


def test_the_tiny_model_is_as_large_as_it_is_told(folder):
    loaded = load_model("onevision", folder)
    config = loaded.model.config
    assert 270_000 < sum(map(torch.numel, loaded.model.parameters())) < 600_000
    for part in (config.text_config, config.vision_config):
        assert part.hidden_size == 32 * part.num_attention_heads
    spread = loaded.model.model.language_model.layers[0].self_attn.q_proj.weight.detach().std()
    assert float(spread) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("height", "width", "tiles", "tokens"), [(512, 512, 5, 3699), (1024, 1024, 10, 7371), (2544, 3056, 31, 7226)]
)
def test_tokens_of_published_models(height, width, tiles, tokens):
    assert PUBLISHED.features(height, width) == tokens
    assert image_size_to_num_patches((height, width), PUBLISHED.pinpoints, 384) == tiles


@pytest.mark.parametrize("most", [1, 4, 9])
@pytest.mark.parametrize("grid", [1, 2, 3, 6])
def test_tokens_of_any_size_are_the_librarys_count(grid, most):
    tiling = PUBLISHED.with_limits(f"anyres_max_{most}", grid)
    assert (tiling == PUBLISHED) == (grid == 6 and most == 9)
    sizes = np.random.default_rng(8).integers(20, 3200, (400, 2)).tolist()
    assert [tiling.features(*size) for size in sizes] == [counted(tiling, *size) for size in sizes]


def test_tokens_of_any_size_are_the_models_features(folder):
    """Of 220 sizes, each through the model's own packing; the tower's features are the tiles' alone."""
    loaded = load_model("onevision", folder)
    tiling, model = loaded.family.tiling, loaded.model.model
    sizes = np.random.default_rng(9).integers(9, 400, (220, 2)).tolist()
    for size in sizes:
        tiles = image_size_to_num_patches(tuple(size), list(tiling.pinpoints), tiling.side)
        parts = [torch.zeros(tiles, tiling.cells**2, len(model.image_newline))]
        (packed,), _ = model.pack_image_features(parts, torch.tensor([size]), image_newline=model.image_newline)
        assert len(packed) == tiling.features(*size), size
    for height, width in sizes[:12]:
        made = loaded.family.pictures([np.zeros((height, width, 3), np.uint8)])
        assert len(made.tensors["pixel_values"]) == image_size_to_num_patches(
            (height, width), list(tiling.pinpoints), tiling.side
        )


def test_a_picture_on_its_canvas_keeps_its_proportions():
    for height, width in np.random.default_rng(1).integers(40, 3000, (200, 2)).tolist():
        seen, (rows, columns) = PUBLISHED.visible_size(height, width), PUBLISHED.canvas(height, width)
        assert seen.height == rows or seen.width == columns
        assert abs(seen.width / width - seen.height / height) <= 1 / min(height, width)


RENAMED = {
    "model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head.",
    "model.vision_tower.": "vision_tower.vision_model.", "model.multi_modal_projector.": "multi_modal_projector.",
    "model.image_newline": "image_newline",
}  # fmt: skip
"""{name in the library's classes: name in the published checkpoints}."""
OLD, NEW = "vision_tower.vision_model.", "vision_tower."


def older(name: str) -> str:
    for new, old in RENAMED.items():
        if name.startswith(new):
            return old + name.removeprefix(new)
    raise AssertionError(name)


@pytest.mark.parametrize("names", ["own", "saved", "older", "older without vision_model"])
def test_weights_are_read_by_any_of_their_names(folder, tmp_path, names):
    plain = load_model("onevision", folder).model
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if names != "saved":
        held = {name: value.clone() for name, value in plain.state_dict().items()}
        if names.startswith("older"):
            held = {older(name): value for name, value in held.items()}
        if names.endswith("without vision_model"):
            held = {name.replace("vision_tower.vision_model.", "vision_tower."): value for name, value in held.items()}
        save_file(held, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = load_model("onevision", tmp_path).model  # refuses a missing and an unexpected key
    for name, value in plain.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_weights_are_written_by_the_published_names(tmp_path):
    """A model that was tuned in full: its file's names, by hand, and both read back to the same tensors."""
    given = data(tmp_path, pictures=2)
    run = tune(tmp_path / "t", given, recipe(replace(OPTIONS, family="onevision"), epochs=1))
    held = load_file(run / "model/model.safetensors")
    assert "vision_tower.vision_model.embeddings.patch_embedding.weight" in held
    assert all(name.startswith("vision_tower.vision_model.") for name in held if name.startswith("vision_tower."))
    assert {name.partition(".")[0] for name in held} == {
        "vision_tower", "multi_modal_projector", "language_model", "image_newline",
    }  # fmt: skip
    model = load_run(run).model
    read = {name: value for name, value in model.state_dict().items() if "post_layernorm" not in name}
    for name, value in read.items():
        assert torch.equal(value, held[older(name)]), name


def test_the_index_of_several_files_names_what_they_hold(folder, tmp_path):
    loaded = load_model("onevision", folder)
    write_model(loaded, "onevision", tmp_path / "one", "published")
    loaded.model.save_pretrained(tmp_path / "two", max_shard_size="300KB")
    models._rename_tensors(tmp_path / "two", onevision.published_name)
    parts = sorted((tmp_path / "two").glob("*.safetensors"))
    assert len(parts) > 1
    named = json.loads((tmp_path / "two/model.safetensors.index.json").read_text())["weight_map"]
    assert {name: file.name for file in parts for name in load_file(file)} == named
    assert set(named) == set(load_file(tmp_path / "one/model.safetensors"))


def test_a_wrong_key_is_one_sentence(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    held = load_file(tmp_path / "model.safetensors")
    name = next(name for name in held if "multi_modal_projector" in name)
    held[name.replace("multi_modal_projector", "mm_projector")] = held.pop(name)
    save_file(held, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"keys, such as .*: give a whole onevision model"):
        load_model("onevision", tmp_path)


def test_canvases_that_differ_are_refused(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"image_grid_pinpoints": [', '"image_grid_pinpoints": [[560, 560],', 1))
    with pytest.raises(UserError, match="image_grid_pinpoints of model and processor differ"):
        load_model("onevision", tmp_path)


def test_killed_and_resumed_it_gives_the_same_bytes(tmp_path, monkeypatch):
    given = data(tmp_path, pictures=4)
    options = recipe(replace(OPTIONS, family="onevision"), epochs=3)
    whole = tune(tmp_path / "whole", given, options)
    original = fit.TuningLoop._update

    def update(self, number, *rest):
        if number == 3:
            raise KeyboardInterrupt
        return original(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(fit.TuningLoop, "_update", update)
        with pytest.raises(KeyboardInterrupt):
            tune(tmp_path / "killed", given, options)
    assert contents(tune(tmp_path / "killed", given, options)) == contents(whole)

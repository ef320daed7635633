"""Checkpoints: conversion of the published layouts to ours and back, our files, and their possible faults."""

import json
import os
import stat
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlavaConfig

from cxr.base.errors import UserError
from cxr.ils.rosalia import convert
from cxr.ils.rosalia.config import CLIP_L14, RosaliaConfig
from cxr.ils.rosalia.model import Rosalia
from cxr.nets.weight_files import WeightFiles, write_shards
from cxr.segmentation import published as sam_names
from cxr.segmentation.published import make_sam_vit_h_config
from lisa_reference import IMAGE_ID, Reference

CLIP = convert.CLIP_PREFIX


@pytest.fixture(scope="module")
def reference(shared) -> Reference:
    return Reference(shared / "fixtures" / "lisa_reference")


@pytest.fixture(scope="module")
def original(reference) -> dict[str, torch.Tensor]:
    return load_file(reference.state)


def published(
    folder: Path, reference: Reference, tensors: dict[str, torch.Tensor], shards: int = 1, kind: str = "safetensors"
) -> Path:
    """Write a folder as LISA publishes one."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(reference.text_config()))
    names, where = sorted(tensors), {}
    stem, suffix = ("model", "safetensors") if kind == "safetensors" else ("pytorch_model", "bin")
    for shard in range(shards):
        some = {name: tensors[name].clone() for name in names[shard::shards]}
        file = f"{stem}-{shard + 1:05d}-of-{shards:05d}.{suffix}" if shards > 1 else f"{stem}.{suffix}"
        where |= dict.fromkeys(some, file)
        save_file(some, folder / file) if kind == "safetensors" else torch.save(some, folder / file)
    if shards > 1:
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def converted(reference: Reference, source: Path, target: Path, **more) -> Path:
    llava, sam = reference.configs()
    settings = {
        "seg_id": reference.seg, "image_id": IMAGE_ID, "clip_config": llava.vision_config, "sam": sam,
        "dtype": torch.float32,
    }  # fmt: skip
    convert.to_ours(source, target, **settings | more)
    return target


def refused(call, *words: str) -> None:
    """Check that a call ends in one sentence that holds the words."""
    with pytest.raises(UserError) as error:
        call()
    text = str(error.value)
    assert "\n" not in text
    assert all(word in text for word in words), text
    assert ": " in text  # a remedy


def without_clip(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith(CLIP)}


def clip_folder(folder: Path, tensors: dict[str, torch.Tensor], kind: str = "bin") -> Path:
    """CLIP as its own folder holds it, with the half that reads text."""
    held = {name.removeprefix(CLIP): value.clone() for name, value in tensors.items() if name.startswith(CLIP)}
    held |= {
        "text_model.final_layer_norm.weight": torch.ones(4), "logit_scale": torch.tensor(2.0),
        "visual_projection.weight": torch.ones(2, 2), "vision_model.embeddings.position_ids": torch.arange(257)[None],
    }  # fmt: skip
    folder.mkdir()
    if kind == "bin":
        torch.save(held, folder / "pytorch_model.bin")
    else:
        save_file(held, folder / "model.safetensors")
    return folder


# The table.


def test_the_table_is_one_to_one_and_no_line_is_idle(reference, original):
    ours = {name: convert.our_name(name) for name in original if not convert.IGNORED_TENSORS.fullmatch(name)}
    assert None not in ours.values()
    assert len(set(ours.values())) == len(ours)
    assert {theirs: convert.published_name(mine) for theirs, mine in ours.items()} == {name: name for name in ours}
    for side, names in ((0, ours), (1, ours.values())):
        for line in convert.TABLE:
            assert any(sam_names.compile_pattern(line[side]).fullmatch(name) for name in names), line
    assert set(ours.values()) == set(Rosalia.from_configs(*reference.configs(), 95).state_dict())


def test_the_table_fits_the_models_at_their_true_size():
    text = LlamaConfig(vocab_size=32000, rms_norm_eps=1e-6)  # LLaMA-7B
    llava = LlavaConfig(vision_config=CLIP_L14, text_config=text, projector_hidden_act="linear")
    shapes = convert._model_shapes(RosaliaConfig(llava, make_sam_vit_h_config(), 31999))
    sizes = {convert.published_name(name): torch.Size(shape).numel() for name, shape in shapes.items()}
    assert len(sizes) == len(shapes)

    def of(*prefixes: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(prefixes))

    # the published numbers of parameters (of SAM without its random frequencies, which are a buffer there)
    assert of("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head.") == 6_738_415_616
    assert of(convert.SAM_PREFIX) - 2 * 128 == 641_090_608
    assert of(CLIP) == 303_179_776
    assert of("model.mm_projector.") == 1024 * 4096 + 4096
    assert of("model.text_hidden_fcs.") == 4096 * 4096 + 4096 + 4096 * 256 + 256


# There and back.


@pytest.mark.parametrize(("kind", "shards"), [("safetensors", 1), ("safetensors", 3), ("bin", 1), ("bin", 4)])
def test_there_and_back_is_the_same(reference, original, tmp_path, kind, shards):
    source = published(tmp_path / "lisa", reference, original, shards, kind)
    ours = converted(reference, source, tmp_path / "ours", shard_bytes=200_000)
    assert len(list(ours.glob("model-*.safetensors"))) > 2
    convert.to_published(ours, tmp_path / "back", base=source, with_clip=True, dtype=torch.float32, shard_bytes=300_000)
    with WeightFiles(tmp_path / "back") as weights:
        assert weights.shapes.keys() == original.keys()
        for name, tensor in original.items():
            assert torch.equal(weights.get(name), tensor), name
    assert json.loads((tmp_path / "back/config.json").read_text()) == reference.text_config()


def test_the_converted_model_draws_the_masks_of_the_original(reference, original, tmp_path):
    ours = converted(reference, published(tmp_path / "lisa", reference, original, 2, "bin"), tmp_path / "ours")
    model = Rosalia.from_pretrained(ours)
    assert (model.config.seg_id, model.config.image_id, model.config.eos_id) == (reference.seg, IMAGE_ID, 2)
    assert not model.training
    found = model(reference.batch("A_square")).low_res.detach()
    assert (found - reference["A_square/out/low_res_masks"]).abs().max() < 5e-4


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_clip_comes_from_its_own_folder(reference, original, tmp_path, kind):
    whole = converted(reference, published(tmp_path / "whole", reference, original), tmp_path / "a")
    parts = published(tmp_path / "parts", reference, without_clip(original), 2, "bin")
    joined = converted(reference, parts, tmp_path / "b", clip=clip_folder(tmp_path / "clip", original, kind))
    assert (whole / "model.safetensors").read_bytes() == (joined / "model.safetensors").read_bytes()
    convert.to_published(joined, tmp_path / "back", base=parts, dtype=torch.float32)
    assert load_file(tmp_path / "back/model.safetensors").keys() == without_clip(original).keys()


def test_numbers_become_bfloat16(reference, original, tmp_path):
    source = published(tmp_path / "lisa", reference, original)
    held = load_file(converted(reference, source, tmp_path / "ours", dtype=torch.bfloat16) / "model.safetensors")
    for name, tensor in original.items():
        if not convert.IGNORED_TENSORS.fullmatch(name):
            assert torch.equal(held[convert.our_name(name)], tensor.bfloat16())


def test_one_tensor_at_a_time_is_held(tmp_path):
    alive: list[weakref.ref] = []
    most = 0

    def get(name: str) -> torch.Tensor:
        nonlocal most
        most = max(most, 1 + sum(each() is not None for each in alive))
        memory = np.full(100, float(name), np.float32)  # which lives as long as any tensor that shares it
        alive.append(weakref.ref(memory))
        return torch.from_numpy(memory)

    write_shards(tmp_path, {f"{n:02d}": ((100,), torch.float32) for n in range(20)}, get, shard_bytes=1600)
    assert len(alive) == 20
    assert most == 1
    assert len(list(tmp_path.glob("*.safetensors"))) == 5


# What is wrong with a checkpoint.


def changed(original: dict[str, torch.Tensor], **changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The tensors with some replaced, added or (None) removed; dots in names are written as two underscores."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in (original | named).items() if value is not None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model__layers__1__mlp__up_proj__weight": None}, ["it lacks model.layers.1.mlp.up_proj.weight"]),
        ({"model__visual_model__prompt_encoder__no_mask_embed__weight": None}, ["no_mask_embed"]),
        ({CLIP.replace(".", "__") + "vision_model__post_layernorm__bias": None}, ["post_layernorm.bias"]),
        ({"model__embed_tokens__weight": None}, ["model.embed_tokens.weight"]),
        ({"model__segmenter__weight": torch.ones(2)}, ["model.segmenter.weight", "not a tensor of LISA"]),
        ({"model__layers__3__mlp__up_proj__weight": torch.ones(2)}, ["no model.layers.3.mlp.up_proj.weight"]),
        ({"lm_head__weight": torch.ones(95, 64)}, ["shape differs for lm_head.weight"]),
        ({"model__mm_projector__weight": torch.ones(64, 49)}, ["shape differs for model.mm_projector.weight"]),
    ],
)
def test_tensors_missing_left_over_or_of_another_shape(reference, original, tmp_path, change, words):
    source = published(tmp_path / "lisa", reference, changed(original, **change), 2)
    refused(lambda: converted(reference, source, tmp_path / "ours"), str(source), *words)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_truncated_file(reference, original, tmp_path, kind):
    source = published(tmp_path / "lisa", reference, original, 2, kind)
    file = sorted(source.glob(f"*00002.{kind}"))[0]
    file.write_bytes(file.read_bytes()[:-1000])
    refused(lambda: converted(reference, source, tmp_path / "ours"), str(file), "damaged")


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_shard_that_is_missing(reference, original, tmp_path, kind):
    source = published(tmp_path / "lisa", reference, original, 3, kind)
    file = sorted(source.glob(f"*00002-of*.{kind}"))[0]
    file.unlink()
    refused(lambda: converted(reference, source, tmp_path / "ours"), file.name, "download the file")


class Harmful:
    """Anything but a tensor, which a torch file could run on loading."""


def test_a_file_with_more_than_tensors(reference, original, tmp_path):
    source = published(tmp_path / "lisa", reference, original, 1, "bin")
    torch.save({"lm_head.weight": Harmful()}, source / "pytorch_model.bin")
    refused(lambda: converted(reference, source, tmp_path / "ours"), "pytorch_model.bin", "damaged")
    torch.save([torch.ones(2)], source / "pytorch_model.bin")
    refused(
        lambda: converted(reference, source, tmp_path / "ours"),
        "pytorch_model.bin",
        "not a dictionary of only tensors",
    )


def test_other_mistakes(reference, original, tmp_path):
    def attempt(source, **more):
        return lambda: converted(reference, source, tmp_path / "ours", **more)

    refused(attempt(tmp_path / "nothing"), "nothing holds no weights")
    bare = published(tmp_path / "bare", reference, without_clip(original))
    refused(attempt(bare, clip=tmp_path / "no_clip"), "no_clip holds no weights")
    whole = published(tmp_path / "whole", reference, original)
    refused(attempt(whole, seg_id=96), "96 tokens", "[SEG] has the id 96")
    twice = published(tmp_path / "twice", reference, original)
    save_file({"lm_head.weight": original["lm_head.weight"]}, twice / "more.safetensors")
    refused(attempt(twice), "lm_head.weight", "another file")
    for content, words in (
        (json.dumps(reference.text_config() | {"vocab_size": 32000}), ["32000 tokens", "have 96"]),
        (json.dumps({"vocab_size": 96}), ["lacks hidden_size"]),
        (json.dumps(reference.text_config() | {"hidden_size": "wide"}), ["is damaged", "hidden_size"]),
        ("[]", ["is no JSON object"]),
        ("{", ["missing or damaged"]),
    ):
        (whole / "config.json").write_text(content)
        refused(attempt(whole), "config.json", *words)


# The reset of the published training code.


def sam_file(path: Path, original: dict[str, torch.Tensor], shift: float) -> Path:
    """SAM's own file: its names, and weights unlike LISA's."""
    prefix = convert.SAM_PREFIX
    torch.save({n.removeprefix(prefix): v + shift for n, v in original.items() if n.startswith(prefix)}, path)
    return path


def test_the_mask_branch_begins_anew_and_the_rest_stays(reference, original, tmp_path):
    file = sam_file(tmp_path / "sam.pth", original, 0.5)
    models = [reference.model() for _ in range(3)]
    before = {name: value.clone() for name, value in models[0].state_dict().items()}
    for model, seed in zip(models, (7, 7, 8), strict=True):
        torch.manual_seed(seed * 100)
        drawn = torch.get_rng_state()
        convert.reset_mask_branch(model, file, seed)
        assert torch.equal(torch.get_rng_state(), drawn)
    first, again, other = (model.state_dict() for model in models)
    for name, value in first.items():
        assert torch.equal(value, again[name])
        if name.startswith("sam."):
            assert torch.equal(value, before[name] + 0.5), name
        elif name.startswith("project."):
            assert not torch.equal(value, before[name])
            assert not torch.equal(value, other[name])
            assert value.abs().max() <= 64**-0.5  # torch's own bound for linear layers
        else:
            assert torch.equal(value, before[name]), name


def test_a_wrong_file_of_sam(reference, original, tmp_path):
    model, file = reference.model(), tmp_path / "sam.pth"
    refused(lambda: convert.reset_mask_branch(model, file, 1), "sam.pth holds no weights")
    torch.save({"image_encoder.pos_embed": torch.ones(1, 8, 8, 32)}, file)
    refused(lambda: convert.reset_mask_branch(model, file, 1), str(file), "it lacks image_encoder.")
    sam_file(file, original | {convert.SAM_PREFIX + "image_encoder.pos_embed": torch.ones(1, 64, 64, 32)}, 0)
    refused(lambda: convert.reset_mask_branch(model, file, 1), str(file), "shape differs for image_encoder.pos_embed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sam_goes_into_its_own_layout_and_back(reference, original, tmp_path, dtype):
    reference.model().to(dtype).save_pretrained(tmp_path / "model", 100_000)
    convert.to_sam(tmp_path / "model", tmp_path / "sam.safetensors")
    # the names and numbers of the original code's own SAM
    prefix = convert.SAM_PREFIX
    wanted = {name.removeprefix(prefix): value for name, value in original.items() if name.startswith(prefix)}
    held = load_file(tmp_path / "sam.safetensors")
    assert held.keys() == wanted.keys()
    for name, value in wanted.items():
        assert held[name].dtype == torch.float32
        assert torch.equal(held[name], value.to(dtype).float()), name
    other = reference.model()
    with torch.no_grad():
        for value in other.sam.state_dict().values():
            value.add_(1)
    convert.reset_mask_branch(other, tmp_path / "sam.safetensors", 1)
    for name, value in reference.model().to(dtype).float().sam.state_dict().items():
        assert torch.equal(other.sam.state_dict()[name], value), name


def test_no_sam_of_a_model_that_is_not_whole(reference, tmp_path):
    folder, target = tmp_path / "model", tmp_path / "sam.safetensors"
    refused(lambda: convert.to_sam(folder, target), "config.json is missing")
    reference.model().save_pretrained(folder)
    held, file = load_file(folder / "model.safetensors"), folder / "model.safetensors"
    lost = "sam.mask_decoder.iou_token.weight"
    save_file({name: value for name, value in held.items() if name != lost}, file)
    refused(lambda: convert.to_sam(folder, target), str(folder), f"lacks {lost}")
    save_file(held | {"sam.more": torch.ones(2)}, file)
    refused(lambda: convert.to_sam(folder, target), str(folder), "no sam.more")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_of_sam_from_before_torch_1_6(reference, original, tmp_path):
    model, file = reference.model(), tmp_path / "sam.pth"
    prefix = convert.SAM_PREFIX
    held = {name.removeprefix(prefix): value for name, value in original.items() if name.startswith(prefix)}
    torch.save(held, file, _use_new_zipfile_serialization=False)
    convert.reset_mask_branch(model, file, 1)
    assert torch.equal(model.sam.vision_encoder.pos_embed, original[prefix + "image_encoder.pos_embed"])


# Files of ours.


@pytest.mark.parametrize(("dtype", "shard_bytes"), [(torch.float32, 10**9), (torch.bfloat16, 100_000)])
def test_saved_and_read_is_the_same_to_the_bit(reference, tmp_path, dtype, shard_bytes):
    model = reference.model().to(dtype)
    for folder in ("a", "b"):
        model.save_pretrained(tmp_path / folder, shard_bytes)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert ("model.safetensors.index.json" in files) == (shard_bytes < 10**9)
    for name in files:
        path = tmp_path / "a" / name
        assert path.read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) & 0o044 == 0o044 & ~_umask()
    other = Rosalia.from_pretrained(tmp_path / "a", dtype)
    wanted = model.state_dict()
    assert other.state_dict().keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in other.state_dict().items())
    assert {value.dtype for value in other.state_dict().values()} == {dtype}
    batch = reference.batch("B_nonsquare").to("cpu", dtype)
    assert torch.equal(other(batch).low_res, model(batch).low_res)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_shards_of_an_older_save_do_not_stay(reference, tmp_path):
    model = reference.model()
    model.save_pretrained(tmp_path, 100_000)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    model.save_pretrained(tmp_path, 100_000)
    assert not (tmp_path / "model.safetensors").exists()
    assert torch.equal(Rosalia.from_pretrained(tmp_path).project[0].weight, model.project[0].weight)


def test_what_is_wrong_with_a_model_of_ours(reference, original, tmp_path):
    folder = tmp_path / "model"
    refused(lambda: Rosalia.from_pretrained(folder), "config.json is missing")
    reference.model().save_pretrained(folder)
    file = folder / "model.safetensors"
    whole, held = file.read_bytes(), load_file(file)
    for tensors, words in (
        ({name: value for name, value in held.items() if name != "project.0.bias"}, ["lacks project.0.bias"]),
        (held | {"more": torch.ones(2)}, ["no more"]),
        (held | {"project.0.bias": torch.ones(65)}, ["shape differs for project.0.bias"]),
    ):
        save_file(tensors, file)
        refused(lambda: Rosalia.from_pretrained(folder), str(folder), *words)
    file.write_bytes(whole[:-8])
    refused(lambda: Rosalia.from_pretrained(folder), str(file), "damaged")
    file.unlink()
    refused(lambda: Rosalia.from_pretrained(folder), str(folder), "holds no weights")
    config = json.loads((folder / "config.json").read_text())
    config["sam"]["vision_config"]["hidden_size"] = "wide"
    (folder / "config.json").write_text(json.dumps(config))
    refused(lambda: Rosalia.from_pretrained(folder), "config.json is missing or damaged")
    (folder / "config.json").write_text(json.dumps(reference.text_config()))
    refused(lambda: Rosalia.from_pretrained(folder), "config.json", "not the config of a converted ROSALIA model")

"""How a run cuts pictures into tiles: its recipe's keys, what its files say, and who reads them."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines
from cxr.vlm.answers.ask import load_collator
from cxr.vlm.answers.vllm import load as load_vllm
from cxr.vlm.families.onevision import canvases, has_tiling, write_tiling
from cxr.vlm.models import ADAPTERS, MODEL, link_model, load_run, make_tiny, read_run
from cxr.vlm.settings import Vlm
from cxr.vlm.tuning import fit
from cxr.workflow.plan import Plan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import SettingsError, parse_section
from vlm_runs import ASKING, OPTIONS, ask, contents, data, recipe, tune

OWN = {"tiles": "anyres_max_9", "grid": 2}
"""As the tiny model is made: tiles of 64 px, 4 x 4 features."""
OTHER = {"tiles": "anyres_max_1", "grid": 3}
TOKENS = {(128, 128): (16 + 8 * 9, 16 + 4 * 5), (128, 64): (16 + 8 * 5, 16 + 5 * 3)}
"""{(H, W): tokens of a picture cut as OWN and as OTHER}: 8 x 4 features become 5 x 2, each side over root 2."""
ONEVISION = recipe(replace(OPTIONS, family="onevision", convention="unit", side=128), epochs=1)


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("given"), pictures=2, sizes=tuple(TOKENS))


@pytest.fixture(scope="module")
def base(tmp_path_factory, given) -> Path:
    """A model that cuts as OWN, tuned here, as the hub's cache has one: its weights are a link."""
    folder = tune(tmp_path_factory.mktemp("base"), given, ONEVISION) / MODEL
    weights = folder / "model.safetensors"
    (folder.parent / "blobs").mkdir()
    shutil.move(weights, folder.parent / "blobs/1f")
    weights.symlink_to(os.path.relpath(folder.parent / "blobs/1f", folder))
    return folder


def said(folder: Path) -> list:
    """Return what the files of a model say: of the model, of its picture processor, of the library's processor."""
    config, pictures, whole = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("config.json", "preprocessor_config.json", "processor_config.json")
    )
    assert config["image_grid_pinpoints"] == pictures["image_grid_pinpoints"]
    assert config["vision_aspect_ratio"] == whole["vision_aspect_ratio"]
    return [config["vision_aspect_ratio"], config["image_grid_pinpoints"]]


def tokens(run: Path, base: str = "") -> list[int]:
    family = load_collator(run, base).family
    return [family.pictures([np.zeros((*size, 3), np.uint8)]).tokens[0] for size in TOKENS]


def of(tiling: dict) -> list[int]:
    return [both[tiling == OTHER] for both in TOKENS.values()]


def lora(tiling: dict):
    return recipe(replace(ONEVISION, tiling=tiling), method="lora", learning_rate=2e-2)


@pytest.mark.parametrize("started", ["drawn", "base"])
@pytest.mark.parametrize("tiling", [OWN, OTHER])
def test_a_tuned_model_says_in_its_files_how_it_cuts(given, base, tmp_path, started, tiling):
    before = contents(base)
    run = tune(tmp_path, given, replace(ONEVISION, tiling=tiling), base=str(base) if started == "base" else "")
    sides = range(64, 64 * tiling["grid"] + 1, 64)
    pinpoints = [[rows, columns] for rows in sides for columns in sides]
    assert said(run / MODEL) == [tiling["tiles"], pinpoints]
    assert tokens(run) == of(tiling)
    assert load_run(run).model.config.vision_aspect_ratio == tiling["tiles"]
    assert "tiling" not in read_run(run)
    assert contents(base) == before
    # the model's own count of features is that of the prompt, else it refuses
    assert {line["failure"] for line in read_lines(ask(tmp_path / "a.jsonl", given, run))} == {""}


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("started", ["drawn", "base"])
def test_what_the_model_does_anyway_changes_no_byte(given, base, tmp_path, started, method):
    folder = str(base) if started == "base" else ""
    one, other = (
        contents(tune(tmp_path / name, given, recipe(replace(ONEVISION, tiling=tiling), method=method), base=folder))
        for name, tiling in (("told", OWN), ("untold", {}))
    )
    assert one == other


def test_what_is_not_trained_stays_as_the_base_has_it(given, base, tmp_path):
    options = recipe(replace(ONEVISION, tiling=OTHER), parts=["projector"])
    run = tune(tmp_path, given, options, base=str(base))
    before, after = (load_file(folder / "model.safetensors") for folder in (base, run / MODEL))
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed
    assert {name.partition(".")[0] for name in changed} == {"multi_modal_projector", "image_newline"}


def test_an_adapter_is_asked_as_it_was_tuned_and_its_base_as_it_is(given, base, tmp_path):
    run = tune(tmp_path, given, lora(OTHER), base=str(base))
    assert {path.name for path in run.iterdir()} == {ADAPTERS, "run.json"}
    assert read_run(run)["tiling"] == OTHER
    assert tokens(run, str(base)) == of(OTHER)
    config = load_run(run, str(base)).model.config
    assert (config.vision_aspect_ratio, config.image_grid_pinpoints) == ("anyres_max_1", canvases(3, 64))
    # the same adapter beside a base whose own files say so, made by hand
    shutil.copytree(base, tmp_path / "cut")
    write_tiling(tmp_path / "cut", **OTHER)
    told = ask(tmp_path / "a.jsonl", given, run, base=str(base)).read_bytes()
    assert told == ask(tmp_path / "b.jsonl", given, run, base=str(tmp_path / "cut")).read_bytes()
    assert has_tiling(base, **OWN)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_killed_and_resumed_it_gives_the_same_bytes(given, base, tmp_path, monkeypatch, method):
    """It resumes from the links that it made; one of other tiles starts again."""
    options = recipe(lora(OTHER), method=method, epochs=4)
    whole = tune(tmp_path / "whole", given, options, base=str(base))
    original, done = fit.TuningLoop._update, []

    def update(self, number, *rest):
        done.append(number)
        if number == 3 and len(done) < 5:
            raise KeyboardInterrupt
        return original(self, number, *rest)

    monkeypatch.setattr(fit.TuningLoop, "_update", update)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path / "killed", given, options, base=str(base))
    assert (tmp_path / "killed/checkpoint/start/model.safetensors").is_symlink()
    assert contents(tune(tmp_path / "killed", given, options, base=str(base))) == contents(whole)
    assert done[4] == 2


def test_a_checkpoint_of_other_tiles_is_not_resumed(given, base, tmp_path, monkeypatch):
    def killed(self, number, *rest):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fit.TuningLoop, "_update", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(tmp_path, given, replace(ONEVISION, tiling=OTHER), base=str(base))
    assert (tmp_path / "checkpoint/start").is_dir()
    run = tune(tmp_path, given, replace(ONEVISION, tiling=OWN), base=str(base))
    assert said(run / MODEL)[0] == "anyres_max_9"


@pytest.mark.parametrize("tiling", [{"tiles": "anyres_max_1", "grid": 2}, {"tiles": "anyres_max_9", "grid": 1}])
def test_the_small_models_base_begins_with_any_tiles(given, tmp_path, tiling):
    """No weight's shape depends on them, so that all of the base is there."""
    options = recipe(replace(ONEVISION, tiling=tiling, init="base"), parts=["projector"])
    run = tune(tmp_path, given, options)
    folders = (RESOURCES / "vlm/onevision_tiny", run / MODEL)
    held, tuned = (load_file(folder / "model.safetensors") for folder in folders)
    layers = [name for name in tuned if name.startswith("language_model.model.layers.")]
    assert layers
    assert all(torch.equal(tuned[name], held[name].float()) for name in layers)
    assert said(run / MODEL) == [tiling["tiles"], canvases(tiling["grid"], 64)]


def test_a_processor_in_one_file_is_told_too(tmp_path):
    """As the library writes one now: the picture processor is in the processor's file."""
    make_tiny("onevision", tmp_path, ["where?"], 128, 1)
    pictures, whole = tmp_path / "preprocessor_config.json", tmp_path / "processor_config.json"
    held = json.loads(whole.read_text()) | {"image_processor": json.loads(pictures.read_text())}
    whole.write_text(json.dumps(held))
    pictures.unlink()
    assert has_tiling(tmp_path, **OWN)
    write_tiling(tmp_path, **OTHER)
    assert has_tiling(tmp_path, **OTHER)
    assert json.loads(whole.read_text())["vision_aspect_ratio"] == "anyres_max_1"
    assert not pictures.exists()


def test_links_take_no_weight_along(base, tmp_path):
    link_model("onevision", base, tmp_path, OTHER)
    assert {path.name for path in tmp_path.iterdir() if path.is_symlink()} == {"model.safetensors"}
    assert (tmp_path / "model.safetensors").samefile(base / "model.safetensors")
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in base.iterdir()}


# ---- settings

MIX = {"lines": "radvlm:all"}


def planned(tuning: dict, asked: str = "transformers", **run: object) -> VlmPlan:
    settings = parse_section(Vlm, {"tuning": {"runs": {"r": MIX | run}} | tuning, "answers": {"engine": asked}})
    return VlmPlan(settings, "cpu", 0, ["all"])


@pytest.mark.parametrize(("engine", "grid"), [("onevision", 6), ("onevision_tiny", 2)])
def test_the_keys_are_a_tunings_and_nothing_to_a_model_that_is_asked_as_it_is(tmp_path, engine, grid):
    make_tiny("onevision", tmp_path, ["where?"], 128, 1)
    run = {"engine": engine, "model": str(tmp_path)}
    other = {engine: {"tiles": "anyres_max_4", "grid": 1}}
    plain, cut = (planned(tuning, **run).runs["r"]["options"] for tuning in ({}, other))
    assert plain["tiling"] == {"tiles": "anyres_max_9", "grid": grid}
    assert cut == plain | {"tiling": other[engine]}
    assert not {"tiles", "grid"} & plain["recipe"].keys()
    asked = [planned(tuning, trained=False, **run).runs["r"]["options"] for tuning in ({}, other)]
    assert asked[0] == asked[1]
    assert "tiling" not in asked[0]


def test_other_families_have_none():
    assert "tiling" not in planned({}, engine="tiny").runs["r"]["options"]


@pytest.mark.parametrize(
    ("tuning", "sentence"),
    [
        ({"onevision": {"tiles": "anyres_max_0"}}, r"onevision\.tiles: 'anyres_max_0' is no maximum of tiles: give"),
        ({"onevision": {"tiles": "pad"}}, r"onevision\.tiles: 'pad' is no maximum of tiles: give anyres_max_ and"),
        ({"onevision_tiny": {"tiles": "anyres_max_9x"}}, r"onevision_tiny\.tiles: 'anyres_max_9x' is no maximum"),
        ({"onevision": {"grid": 0}}, r"onevision\.grid is 0, which is wrong: give a number greater than or equal to 1"),
        (
            {"onevision_tiny": {"grid": 33}},
            r"onevision_tiny\.grid is 33, which is wrong: give a number less than or equal",
        ),
        ({"qwen25vl": {"grid": 2}}, r"qwen25vl\.grid"),
    ],
)
def test_a_value_that_cannot_be_is_one_sentence(tuning, sentence):
    with pytest.raises(SettingsError, match=sentence):
        Plan({"vlm": {"tuning": tuning}}, [])


def test_vllm_knows_nine_tiles_and_no_adapter(given, base, tmp_path):
    """It counts features by 9 tiles whatever a model says, and so would show it others than it has learnt."""
    few, adapter = {"onevision_tiny": {"tiles": "anyres_max_4"}}, {"onevision": {"method": "lora"}}
    told = r"onevision_tiny\.tiles is 'anyres_max_4', but vlm\.answers\.engine 'vllm' always uses anyres_max_9: set"
    with pytest.raises(UserError, match=told):
        planned(few, "vllm", engine="onevision_tiny")
    told = r"onevision\.method is 'lora', but vlm\.answers\.engine is 'vllm', which cannot load an adapter of onevision"
    with pytest.raises(UserError, match=told):
        planned(adapter, "vllm", engine="onevision", model=str(base))
    assert planned({"onevision_tiny": {"grid": 1}}, "vllm", engine="onevision_tiny").engine == "vllm"
    as_it_is = planned(adapter, "vllm", engine="onevision", model=str(base), trained=False)
    assert as_it_is.engine == "vllm"
    run = tune(tmp_path / "lora", given, lora(OTHER), base=str(base))
    with pytest.raises(UserError, match="engine is 'vllm', which does not support adapters of onevision: set vlm"):
        load_vllm(run, str(base), ASKING, None, load_collator(run, str(base)))
    full = tune(tmp_path / "full", given, replace(ONEVISION, tiling=OTHER))
    with pytest.raises(UserError, match=r"uses anyres_max_9 for every model, but .* has anyres_max_1: set vlm"):
        load_vllm(full, "", ASKING, None, load_collator(full, ""))

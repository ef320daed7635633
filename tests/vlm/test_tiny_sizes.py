"""Sizes of the small LLaVA-OneVision: which settings give them, and the model that is made of them."""

import json
from dataclasses import replace

import pytest

from cxr.base.tables import read_lines
from cxr.vlm.models import MODEL
from cxr.workflow.plan import make_plan
from cxr.workflow.plan_vlm import make_vlm_plan
from cxr.workflow.settings import SettingsError, parse_section
from cxr.workflow.settings.vlm import Vlm
from vlm_runs import OPTIONS, SIZES, ask, data, recipe, tune

OTHER = {"patch": 8, "hidden": 48, "layers": 2, "vision_hidden": 32, "vision_layers": 1, "head_size": 16}
LINES = {"lines": "radvlm:all"}


def sizes_of(own: dict, **run: object) -> dict | None:
    """Return the sizes that a run is told; ``own``: of the recipe onevision_tiny."""
    tuning = {"onevision_tiny": own, "tiny": {"family": "onevision"}, "runs": {"r": LINES | run}}
    options = make_vlm_plan(parse_section(Vlm, {"tuning": tuning}), "cpu", 0, ["all"]).runs["r"]["options"]
    assert "sizes" not in options["own"]
    return options.get("sizes")


def test_every_model_that_is_drawn_has_the_settings_sizes_and_no_other():
    own = {"init": "random", "sizes": OTHER}
    assert sizes_of({}, engine="onevision_tiny") == SIZES
    assert sizes_of(own, engine="onevision_tiny") == sizes_of(own, engine="tiny") == OTHER
    assert sizes_of({"init": "random", "sizes": {"layers": 5}}, engine="onevision_tiny") == SIZES | {"layers": 5}
    assert sizes_of({}, engine="onevision_tiny", model="a/b") is None
    assert sizes_of({}, engine="onevision") is None
    assert sizes_of({"family": "gemma3", "init": "random"}, engine="onevision_tiny") is None
    assert "sizes" not in make_vlm_plan(Vlm(), "cpu", 0, ["all"]).runs["medground"]["options"]


def test_a_run_of_other_sizes_is_made_so_and_answers(tmp_path):
    given = data(tmp_path, pictures=2, sizes=((64, 64),))
    told = recipe(replace(OPTIONS, family="onevision", convention="unit", side=64, sizes=OTHER), epochs=1)
    run = tune(tmp_path / "run", given, told)
    config = json.loads((run / MODEL / "config.json").read_text(encoding="utf-8"))
    names = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}
    text, vision = (config[part] for part in ("text_config", "vision_config"))
    assert [text[name] for name in sorted(names)] == [48, 96, 3, 2]
    assert [vision[name] for name in sorted(names)] == [32, 64, 2, 1]
    assert text["num_key_value_heads"] == 3
    assert (vision["patch_size"], vision["image_size"]) == (8, 32)
    assert {line["failure"] for line in read_lines(ask(tmp_path / "a.jsonl", given, run))} == {""}


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (
            {"init": "random", "sizes": {"hidden": 80}},
            r"^vlm\.tuning\.onevision_tiny\.sizes: hidden is 80, which is no multiple of head_size, 32: set hidden to "
            "96, or head_size to a divisor",
        ),
        (
            {"init": "random", "sizes": {"head_size": 48}},
            "vision_hidden is 64, which is no multiple of head_size, 48: set vision_hidden to 96, or",
        ),
        (
            {"sizes": {"head_size": 31}},
            r"sizes\.head_size is 31, which is wrong: give a multiple of 2; the default is",
        ),
        (
            {"sizes": {"layers": 0}},
            r"onevision_tiny\.sizes\.layers is 0, which is wrong: give a number greater than",
        ),
        (
            {"init": "random", "sizes": {"patch": 33}},
            "side is 128 and sizes.patch 33, but a tile has half of side and needs two patches: set side to 132 or "
            r"more, or sizes\.patch to 32 or less",
        ),
        (
            {"sizes": {"layers": 2}},
            r"sizes\.layers is 2, but the base in resources/vlm/onevision_tiny has 3: leave it so, or set init to",
        ),
        (
            {"family": "gemma3", "init": "random", "sizes": {"hidden": 64}},
            r"sizes\.hidden is 64, but family is 'gemma3', whose small model has sizes of its own: leave sizes out, or",
        ),
    ],
)
def test_a_size_that_cannot_be_is_one_sentence(own, sentence):
    with pytest.raises(SettingsError, match=sentence):
        make_plan({"vlm": {"tuning": {"onevision_tiny": own}}}, [])


def test_sizes_at_their_bound_are_taken():
    assert sizes_of({"init": "random", "sizes": {"patch": 32}}, engine="onevision_tiny") == SIZES | {"patch": 32}


def test_a_run_begins_from_no_base_of_other_sizes():
    own = {"init": "random", "sizes": {"vision_layers": 4}}
    run = LINES | {"engine": "onevision_tiny", "init": "base"}
    told = r"runs\.r\.init is 'base' and onevision_tiny\.sizes\.vision_layers is 4, but the base .* has 2: leave it so"
    with pytest.raises(SettingsError, match=told):
        make_plan({"vlm": {"tuning": {"onevision_tiny": own, "runs": {"r": run}}}}, [])

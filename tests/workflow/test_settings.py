"""Settings: the documents agree with the model, and a wrong value is answered with one sentence."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

import parsed
from cxr.base.engines import engine_names
from cxr.base.errors import UserError
from cxr.base.settings import Section, constraint
from cxr.base.settings import key as declare
from cxr.workflow import params, settings
from cxr.workflow.code_digest import SCRIPTS
from cxr.workflow.settings import document
from cxr.workflow.settings.validation import sections_of

ROOT = SCRIPTS.parent


@pytest.mark.parametrize("name", document.documents())
def test_documents_are_those_of_the_model(name):
    made = document.documents()[name]
    assert (ROOT / name).read_text(encoding="utf-8") == made, "run `make docs`"


def test_config_yaml_holds_defaults_of_the_keys_that_people_change():
    config = yaml.safe_load(document.config_yaml())
    assert settings.with_defaults(config) == settings.Settings().as_dict()
    assert set(config) <= set(settings.Settings.declared())
    assert len(document.config_yaml().splitlines()) <= 400


def test_what_a_file_leaves_out_keeps_its_default():
    changes = {"thresholds": {"sets": {"mine": {"general": {"conf": 0.3}}}, "grid": {"general": {"conf": []}}}}
    thresholds = settings.read(settings.with_defaults(changes)).thresholds
    assert list(thresholds.sets) == ["default", "half", "mine"]
    assert thresholds.sets["mine"].general.conf == 0.3
    assert thresholds.grid.general == {"ano": [0.05, 0.1, 0.15], "conf": []}


def test_every_key_is_described_and_sourced():
    def fields(section):
        for name, (annotation, key) in section.declared().items():
            yield f"{section.__name__}.{name}", key
            for inner in sections_of(annotation):
                yield from fields(inner)

    for name, key in fields(settings.Settings):
        assert key.description, name
        assert key.description.endswith("."), name
        assert key.source in {"paper", "authors' code", "ours"}, name


@pytest.mark.parametrize("parents", [(0, 1), (1, 0)])
def test_a_section_has_the_constraints_of_all_its_parents(parents):
    class Temperature(Section):
        temperature: float = declare(0.0, "Temperature.")

    class Answer(Section):
        @constraint
        def _is_positive(self) -> None:
            if self.length <= 0:
                raise ValueError("length is not positive")

    kinds = (Temperature, Answer)

    class Model(kinds[parents[0]], kinds[parents[1]]):
        length: int = declare(1, "Length of an answer.")

    assert Model().length == 1
    with pytest.raises(ValueError, match="length is not positive"):
        Model(length=0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"organs": {"engine": "best"}}, ["organs.engine", "'best'", "'lite'"]),
        ({"organ": {}}, ["organ is not a setting", "organs"]),
        ({"cohort": {"shard": 2}}, ["cohort.shard is not a setting", "shards"]),
        ({"cohort": {"shards": 0}}, ["cohort.shards is 0", "greater than or equal to 1"]),
        ({"cohort": {"source": "mimic"}}, ["cohort.root must be set"]),
        ({"cohort": {"source": "manifest"}}, ["cohort.manifest must be set"]),
        ({"cohort": {"split": {"train": 90, "validate": 5, "test": 1}}}, ["cohort", "split", "add up to 100"]),
        ({"boxes": {"floor": 0.05}}, ["boxes.floor is 0.05", "0.005", "'half'", "lower the floor"]),
        ({"boxes": {"engine": "table"}}, ["boxes.table must be set"]),
        ({"cohort": None}, ["cohort is empty (null)", "leave the key out"]),
        ({"cohort": {"views": []}}, ["cohort.views is []"]),
        ({"organs": {"engine": None}}, ["organs.engine is empty (null)"]),
        ({"phantom": {"subjects": 80, "studies": 10}}, ["phantom", "studies is 10", "80 subjects"]),
        ({"frames": {"percentiles": [99, 1]}}, ["frames", "percentiles is [99.0, 1.0]", "lower percentile first"]),
        ({"frames": {"percentiles": [0, 101]}}, ["frames.percentiles, entry 2, is 101"]),
        ({"dataset": {"mimic_ils_layout": True}, "frames": {"per_study": "all"}}, ["mimic_ils_layout", "per_study"]),
        ({"thresholds": {"build": []}}, ["thresholds.build is []"]),
        ({"thresholds": {"build": ["half", "half"]}}, ["build lists 'half' twice"]),
        ({"thresholds": {"sets": {"sweep": {}}}}, ["'sweep'", "rename"]),
        ({"thresholds": {"sets": {"configured": {}}}}, ["'configured'", "rename"]),  # a column of counts.tsv
        ({"thresholds": {"sets": {"paper": {}}}}, ["'paper'", "rename"]),
        ({"thresholds": {"grid": {"general": {"conf": None}}}}, ["grid.general.conf is empty (null)"]),
        ({"thresholds": {"build": ["defualt"]}}, ["build: 'defualt' is no threshold set", "default, half"]),
        ({"thresholds": {"grid": {"base": "x"}}}, ["grid.base 'x' is no threshold set", "default, half"]),
        ({"thresholds": {"sets": {"a/b": {}}}}, ["a/b", "pattern"]),
        (
            {"thresholds": {"sets": {"mine": {"general": {"ano": 1.5}}}}},
            ["mine.general.ano is 1.5", "less than"],
        ),
        ({"thresholds": {"sets": {"mine": {"general": {"anno": 0.1}}}}}, ["general.anno is not a setting", "signal"]),
        ({"thresholds": {"grid": {"general": {"ano": [2]}}}}, ["grid.general.ano, entry 1, is 2"]),
        ({"dataset": {"mimic_ils": "there"}}, ["dataset.mimic_ils_images", "give the folder of its images"]),
        (
            {"training": {"lite": {"sizes": {"image": 100, "patch": 16}}}},
            ["training.lite", "sizes.image is 100: make it a multiple of 16"],
        ),
        (
            {"training": {"lite": {"sizes": {"clip_image": 70}}}},
            ["training.lite", "sizes.clip_image is 70: make it a multiple of 16"],
        ),
        ({"training": {"lite": {"trained": []}}}, ["training", "lite.trained is empty", "set one of them"]),
        (
            {"training": {"rosalia": {"trained": [], "lora": {"rank": 0}}}},
            ["training", "rosalia.trained is empty and lora.rank is 0", "set one of them"],
        ),
        ({"evaluation": {"predictions": {"mine": {}}}}, ["evaluation", "predictions.mine.path is empty"]),
        (
            {"evaluation": {"predictions": {"all": {"adapter": "everything", "path": "there"}}}},
            ["predictions.all.path is 'there'", "remove the path"],
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(config, words):
    defaults = settings.Settings().as_dict()
    with pytest.raises(settings.SettingsError) as caught:
        settings.read(_merge(defaults, config))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    "chosen",
    [
        {"fit": "published"},
        {"fit": "stretch"},
        {"lite": {"trained": [], "lora": {"rank": 1}}},
        {"rosalia": {"trained": ["project"], "lora": {"rank": 0}}},
        {"lite": {"init": "random", "sizes": {"image": 96, "patch": 16}}},
    ],
)
def test_a_training_beside_the_refused_ones_is_accepted(chosen):
    settings.read({"training": chosen})


def _other(adapter: str, path: str) -> dict:
    return {"evaluation": {"predictions": {"other": {"adapter": adapter, "path": path}}}}


@pytest.mark.parametrize(
    ("config", "image", "sentence"),
    [
        ({"training": {"runs": {"mine": {"lines": "gone"}}}}, "", "training.runs.mine.lines: there is no file 'gone'"),
        ({"training": {"runs": {"mine": {"lines": "d"}}}}, "", "training.runs.mine.lines: there is no file 'd'"),
        (
            {"dataset": {"mimic_ils": "gone", "mimic_ils_images": "d"}},
            "",
            "dataset.mimic_ils: there is no folder 'gone'",
        ),
        (
            {"dataset": {"mimic_ils": "d", "mimic_ils_images": "f"}},
            "",
            "dataset.mimic_ils_images: there is no folder 'f'",
        ),
        ({"evaluation": {"reviewed": "gone"}}, "", "evaluation.reviewed: there is no file 'gone'"),
        (_other("jsonl", "d"), "", "evaluation.predictions.other.path: there is no file 'd'"),
        (_other("text4seg", "gone"), "", "evaluation.predictions.other.path: there is no file 'gone'"),
        (_other("png", "f"), "", "evaluation.predictions.other.path: there is no folder 'f'"),
        (_other("text4seg_sam", "gone"), "", "evaluation.predictions.other.path: there is no folder 'gone'"),
        ({}, "gone.dcm", "image: there is no file 'gone.dcm'"),
        ({}, "d", "image: there is no file 'd'"),
    ],
)
def test_a_wrong_path_of_the_model_half_is_one_sentence(tmp_path, monkeypatch, config, image, sentence):
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    Path("f").touch()
    with pytest.raises(UserError) as caught:
        params.check_files(settings.read(config), image)
    assert str(caught.value) == f"{sentence}: correct the path"


def test_the_right_paths_of_the_model_half_are_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    Path("f").touch()
    others = {adapter: {"adapter": adapter, "path": "f"} for adapter in ("jsonl", "text4seg")}
    others |= {adapter: {"adapter": adapter, "path": "d"} for adapter in ("png", "lisa", "text4seg_sam")}
    config = {
        "training": {"runs": {"default": {}, "mine": {"lines": "f"}}},
        "dataset": {"mimic_ils": "d", "mimic_ils_images": "d"},
        "evaluation": {"reviewed": "f", "predictions": others | {"everything": {"adapter": "everything"}}},
    }
    params.check_files(settings.read(config), "f")
    params.check_files(settings.Settings(), "")


def _merge(base: dict, over: dict) -> dict:
    return base | {
        key: _merge(base.get(key) or {}, value) if isinstance(value, dict) else value for key, value in over.items()
    }


def test_the_settings_and_sets_of_the_page_of_ils_are_right():
    text = (ROOT / "docs/systems/ils.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.S)]
    assert blocks
    config = settings.with_defaults({})
    made = [settings.read(_merge(config, block)).thresholds for block in blocks]
    targets = re.findall(r"snakemake results/dataset/([^/`]+)/train\.jsonl", text)
    assert targets
    assert all(any(name in thresholds.all_sets() for thresholds in made) for name in targets)


def test_grid_names_are_the_values_as_written():
    chosen = settings.read({"thresholds": {"grid": {"general": {"ano": [0.05, 0.1]}, "edema": {"conf": [0.02]}}}})
    grid = chosen.thresholds.grid_sets()
    assert list(grid) == ["ano0.05_edema-conf0.02", "ano0.1_edema-conf0.02"]
    first = grid["ano0.05_edema-conf0.02"]
    assert (first.general.ano, first.general.conf, first.edema.conf, first.edema.ano) == (0.05, 0.2, 0.02, 0.01)


def test_an_empty_axis_leaves_the_grid():
    config = settings.with_defaults({})
    over = {"thresholds": {"grid": {"general": {"ano": [0.05, 0.1], "conf": [], "signal": [0.1]}}}}
    grid = settings.read(_merge(config, over)).thresholds.grid_sets()
    assert list(grid) == ["ano0.05_signal0.1", "ano0.1_signal0.1"]
    assert grid["ano0.1_signal0.1"].general.conf == 0.2
    over["thresholds"]["grid"]["general"] = {"ano": [], "conf": []}
    assert settings.read(_merge(config, over)).thresholds.grid_sets() == {}


def test_paper_thresholds():
    sets = settings.Settings().thresholds.sets
    assert sets["default"].general.as_dict() == {
        "ano": 0.1,
        "anatomy": 0.25,
        "conf": 0.2,
        "signal": 0.2,
        "size": 0.1,
    }
    assert sets["default"].edema.as_dict() == {
        "ano": 0.01,
        "anatomy": 0.25,
        "conf": 0.01,
        "signal": 0.2,
        "size": 0.1,
    }
    for half, whole in ((sets["half"].general, sets["default"].general), (sets["half"].edema, sets["default"].edema)):
        assert all(getattr(half, tau) * 2 == getattr(whole, tau) for tau in half.declared())


def test_a_partial_edema_set_keeps_edemas_other_thresholds():
    defaults = settings.Settings().as_dict()
    chosen = settings.read(_merge(defaults, {"thresholds": {"sets": {"mine": {"edema": {"ano": 0.02}}}}}))
    assert chosen.thresholds.sets["mine"].edema.conf == 0.01


STAGES_WITH_OPTIONS = (
    "phantom",
    "cohort",
    "frames",
    "reports",
    "organs",
    "anomaly",
    "anatomy",
    "boxes",
    "dataset",
    "figures",
    "training",
    "inference",
)


@pytest.mark.parametrize("stage", STAGES_WITH_OPTIONS)
def test_a_stage_gets_exactly_the_options_it_declares(stage):
    given = params.stage_options(settings.Settings())[stage]
    rules = [
        rule for rule in parsed.working().values() if rule.name.partition("_")[0] == stage and "options" in rule.params
    ]
    module, _, name = f"cxr.{rules[0].function}".rpartition(".")
    function = getattr(importlib.import_module(module), name)
    declared = get_type_hints(function)["options"]
    kinds = get_type_hints(declared)
    fields = {field.name for field in dataclasses.fields(declared)}
    engines = engine_names(f"cxr.{rules[0].function}".rsplit(".", 2)[0])
    section_names = {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}
    arguments = inspect.signature(function).parameters.keys() - fields
    assert given.keys() - arguments == fields - (section_names & set(engines) - {given.get("engine")})


def test_options_are_plain_builtins():
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(plain(item) for item in value)
        return value is None or type(value) in (str, int, float, bool)

    assert plain(params.stage_options(settings.Settings()))


def test_an_answer_must_fit_into_the_context_of_a_model_that_is_used():
    short = {"llm": {"context": 2048}}
    assert settings.read(short).llm.context == 2048
    with pytest.raises(
        settings.SettingsError, match=r"reports.llm.structuring.max_tokens is 4096, but llm.context, .*, is 2048"
    ):
        settings.read(short | {"reports": {"engine": "vllm"}})

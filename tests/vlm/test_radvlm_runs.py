"""Runs and sets on lines of RadVLM: which files, pictures and sets they have, and the part of a frame that is seen."""

from pathlib import Path

import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.geometry.affine import fit_affine
from cxr.vlm.samples import ImageStore, parse_sample
from cxr.vlm.settings import Vlm
from cxr.workflow.plan import Plan
from cxr.workflow.plan_radvlm import EvaluationPlan
from cxr.workflow.plan_vlm import VlmPlan, lines_file
from cxr.workflow.settings import SettingsError, parse_section, read

FOLDER = "results/radvlm/instructions"


def test_lines_of_a_mix_are_its_files():
    assert lines_file("k", "radvlm:all", "train", ["all"]) == f"{FOLDER}/all/train.jsonl"
    assert lines_file("k", "radvlm:own_2/exchanged", "", ["own_2"]) == f"{FOLDER}/own_2/exchanged.jsonl"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("radvlm:none", r"k is 'radvlm:none', but radvlm.instructions.mixes has all, few: name one of them, or add"),
        ("radvlm:all/dev", r"k is 'radvlm:all/dev', but a mix has the files train, validate, test, exchanged: name"),
    ],
)
def test_an_unknown_mix_or_file_is_one_sentence(given, sentence):
    with pytest.raises(UserError, match=sentence):
        lines_file("k", given, "train", ["all", "few"])


def model_of(folder: str) -> dict:
    run = {"engine": "onevision", "lines": "radvlm:all", "trained": False, "model": folder}
    return {"vlm": {"tuning": {"runs": {"base": run}}}, "radvlm": {"evaluation": {"runs": []}}}


@pytest.mark.parametrize("gone", ["/gone/model", "./gone", "../gone", "~/model", "models/gone/model"])
def test_a_model_that_is_not_on_the_disk_stops_before_any_job(gone):
    sentence = rf"^vlm\.tuning\.runs\.base\.model: there is no folder '{gone}': correct the path"
    with pytest.raises(UserError, match=sentence):
        Plan(model_of(gone), [])


def test_a_model_that_is_there_or_on_the_hub_is_planned(tmp_path):
    runs = Plan(model_of(str(tmp_path)), []).vlm.runs
    assert (runs["base"]["base"], runs["base"]["options"]["model"]) == ([str(tmp_path)], "")
    runs = Plan(model_of("llava-hf/llava-onevision-qwen2-7b-si-hf"), []).vlm.runs
    assert runs["base"]["options"]["model"] == "llava-hf/llava-onevision-qwen2-7b-si-hf"


def test_a_set_is_asked_of_the_runs_of_its_system():
    plan = VlmPlan(Vlm(), "cpu", 0, ["all"])
    assert plan.sets_by_run["radvlm"] == ["radvlm_test", "radvlm_exchanged"]
    assert plan.sets_by_run["medground"] == ["medground_test", "medground_zero_shot"]
    assert (plan.gpus["radvlm"], plan.answer_gpus["radvlm"]) == (0, 0)
    options = plan.runs["radvlm"]["options"]
    assert (options["engine"], options["family"], options["convention"]) == ("tiny", "onevision", "unit")
    longest = {name: plan.answer_options[name]["max_new_tokens"] for name in ("radvlm", "medground")}
    assert longest == {"radvlm": 300, "medground": 2048}


@pytest.mark.parametrize(("answers", "longest"), [({}, 1500), ({"max_new_tokens": 900}, 900)])
def test_llava_onevision_has_adapters_and_longest_answers_of_its_own(answers, longest):
    """Those of MedGround's recipes stay as its paper has them."""
    run = {"model": "some/model", "lines": "radvlm:all"}
    runs = {name: run | {"engine": name} for name in ("onevision", "qwen25vl")}
    settings = parse_section(Vlm, {"tuning": {"runs": runs}, "answers": answers})
    plan = VlmPlan(settings, "cpu", 0, ["all"])
    adapters = {name: one["options"]["recipe"]["lora"] for name, one in plan.runs.items()}
    sizes = {name: (adapter["rank"], adapter["alpha"]) for name, adapter in adapters.items()}
    assert sizes == {"onevision": (128, 256), "qwen25vl": (8, 32)}
    assert plan.answer_options["onevision"]["max_new_tokens"] == longest
    assert plan.answer_options["qwen25vl"]["max_new_tokens"] == answers.get("max_new_tokens", 2048)
    assert "max_new_tokens" not in plan.runs["onevision"]["options"]["recipe"]


@pytest.mark.parametrize(("shape", "seen"), [((100, 50), (64, 32)), ((40, 160), (16, 64)), ((30, 30), (64, 64))])
def test_what_pads_a_frame_is_not_seen(tmp_path, shape, seen):
    affine = fit_affine(shape, 64, "pad")
    rows, columns = seen
    frame = np.zeros((64, 64), np.uint8)
    top, left = (64 - rows) // 2, (64 - columns) // 2
    frame[top : top + rows, left : left + columns] = 200
    path = tmp_path / "frames" / "00.h5"
    path.parent.mkdir()
    with ShardWriter(path, pictures=("image",)) as writer:
        writer.append("i", image=frame, to_original=affine, original_shape=np.array(shape, np.int32))
    line = {"sample_id": "s", "image_id": "i", "source": "own", "split": "train", "task": "t"}
    sample = parse_sample(line | {"turns": [{"question": "q", "answer": "a"}]})
    with ImageStore([path]) as store:
        assert store.size(sample) == seen
        picture = store.get(sample)
    assert picture.shape == (*seen, 3)
    assert (picture == 200).all()


def two_sources(folder):
    """Write frames of two sources that have an image of one id, and of one that lies on the second's."""
    paths = {}
    for source, grey in (("first", 50), ("second", 150)):
        paths[source] = folder / source / "frames/00.h5"
        with ShardWriter(paths[source], pictures=("image",)) as writer:
            writer.append(
                "i", image=np.full((8, 8), grey, np.uint8), to_original=np.eye(2, 3),
                original_shape=np.array([8, 8], np.int32),
            )  # fmt: skip
    return paths, {name: str(path.parent) for name, path in paths.items()} | {"guest": str(paths["second"].parent)}


def shown_to(source: str):
    line = {"sample_id": "s", "image_id": "i", "source": source, "split": "train", "task": "t"}
    return parse_sample(line | {"turns": [{"question": "q", "answer": "a"}]})


def test_a_source_shows_its_own_picture_though_another_has_one_of_that_id(tmp_path):
    paths, folders = two_sources(tmp_path)
    for order in (["first", "second"], ["second", "first"]):
        with ImageStore([paths[name] for name in order], folders=folders) as store:
            seen = {source: store.get(shown_to(source)).mean() for source in folders}
            views = {source: store.view(shown_to(source)) for source in folders}
        assert seen == {"first": 50, "second": 150, "guest": 150}
        assert views["first"] != views["second"] == views["guest"]


def test_a_picture_that_may_be_either_sources_is_refused(tmp_path):
    paths, folders = two_sources(tmp_path)
    sentence = rf"s: the image 'i' of 'x' is in {folders['first']} and in {folders['second']}: give only the"
    with ImageStore(paths.values(), folders=folders) as store, pytest.raises(UserError, match=sentence):
        store.get(shown_to("x"))
    with ImageStore([paths["first"]], folders=folders) as store:
        assert store.get(shown_to("x")).mean() == 50  # one alone has it
        with pytest.raises(UserError, match="s: no shard has the image 'i' of 'second': add its shard"):
            store.get(shown_to("second"))


def test_runs_and_answers_are_told_where_the_frames_of_each_source_lie(tmp_path):
    (tmp_path / "vindr").mkdir()
    used = {"use": ["own", "v"], "list": {"v": {"format": "vindr", "path": str(tmp_path / "vindr")}}}
    plan = Plan({"radvlm": {"sources": used}}, [])
    assert plan.image_folders("radvlm") == {"own": "results/frames", "v": "results/radvlm/sources/v/frames"}
    assert plan.image_folders("medground") == {}
    folders = {str(Path(path).parent) for path in plan.image_shards("radvlm")}
    assert folders == set(plan.image_folders("radvlm").values())


MIX = {"engine": "onevision_tiny", "lines": "radvlm:all"}


def planned(**run: object) -> VlmPlan:
    settings = parse_section(Vlm, {"tuning": {"runs": {"r": MIX | run}}})
    return VlmPlan(settings, "cpu", 0, ["all"])


@pytest.mark.parametrize(
    ("recipe", "model"), [({}, "llava-hf/llava-onevision-qwen2-7b-si-hf"), ({"model": "a/b"}, "a/b")]
)
@pytest.mark.parametrize("trained", [True, False])
def test_a_run_of_llava_onevision_that_names_no_model_takes_its_recipes(recipe, model, trained):
    named = {"engine": "onevision", "lines": "radvlm:all", "trained": trained, "revision": "1" * 40}
    runs = {"none": named, "same": named | {"model": model}, "other": named | {"model": "c/d"}}
    whole = Plan({"vlm": {"tuning": {"runs": runs, "onevision": recipe}}, "radvlm": {"evaluation": {"runs": []}}}, [])
    plan = whole.vlm
    assert plan.runs["none"] == plan.runs["same"]
    told = {name: (run["options"]["model"], run["options"]["revision"]) for name, run in plan.runs.items()}
    assert told == {"none": (model, "1" * 40), "same": (model, "1" * 40), "other": ("c/d", "1" * 40)}
    assert {plan.answer_options[name]["model"] for name in ("none", "same")} == {model}
    assert "model" not in plan.runs["none"]["options"]["recipe"]
    noted = {name: one["options"]["revision"] for name, one in whole.weights.models.items()}
    assert noted == ({} if recipe else {"llava_onevision": "1" * 40})


def test_only_llava_onevision_has_a_model_of_its_own():
    with pytest.raises(ValueError, match="model is empty, but the engine qwen3vl needs a base model: give a folder or"):
        planned(engine="qwen3vl")
    with pytest.raises(ValueError, match="model is empty, so there is nothing to ask: give a model"):
        planned(trained=False)
    assert planned().runs["r"]["options"]["model"] == ""
    with pytest.raises(SettingsError, match=r"^vlm\.tuning\.onevision\.model is '', which is wrong: give a text of at"):
        read({"vlm": {"tuning": {"onevision": {"model": ""}}}})


def test_a_runs_own_keys_are_its_tunings_alone():
    """The order of tasks, and a task that is named twice, are nothing to a run."""
    told = {"tasks": ["conversation", "classification", "conversation"], "updates": 7, "init": "random"}
    plain, own = planned().runs["r"]["options"], planned(**told).runs["r"]["options"]
    assert "tasks" not in plain
    assert (plain["recipe"]["updates"], plain["init"]) == (1000, "base")
    changed = {"tasks": ["classification", "conversation"], "init": "random"}
    assert own == plain | changed | {"recipe": plain["recipe"] | {"updates": 7}}
    assert planned(init="base").runs["r"]["options"]["init"] == "base"


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (
            {"engine": "tiny", "lines": "medground:dataset", "tasks": ["classification"]},
            r"tasks is \['classification'\], but lines is 'medground:dataset', whose lines have no task: leave tasks",
        ),
        ({"tasks": ["grounding"]}, "tasks has 'grounding', which is not a task: choose from report_generation, "),
        ({"engine": "tiny", "init": "random"}, "init is 'random', but the engine tiny has no such choice: leave init"),
        ({"init": "zeros"}, "Input should be '', 'base' or 'random'"),
        ({"updates": -1}, "greater than or equal to 0"),
        ({"model": "m", "trained": False, "updates": 5}, "updates is 5, but trained is false, so nothing is tuned"),
    ],
)
def test_a_key_that_a_run_cannot_have_is_refused(run, sentence):
    with pytest.raises((ValueError, UserError), match=sentence):
        planned(**run)


def test_a_run_of_some_tasks_is_scored_on_these():
    runs = {"radvlm": MIX, "some": MIX | {"tasks": ["conversation"]}}
    settings = read({"vlm": {"tuning": {"runs": runs}}, "radvlm": {"evaluation": {"runs": list(runs)}}})
    plan = EvaluationPlan(settings, VlmPlan(settings.vlm, "cpu", 0, ["all"]))
    assert plan.score_options("some") == plan.score_options("radvlm") | {"tasks": ["conversation"]}
    assert plan.score_options("radvlm")["tasks"] == []

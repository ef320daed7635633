"""Every file of examples/ plans a whole run; files that a user brings are stand-ins."""

import pytest
import yaml

from cohort_runs import write_csv
from conftest import ROOT, every
from cxr.imaging.weights.catalogue import list_placed_files
from dicom_files import dataset, encoded, picture, stored_values
from mimic_tree import mimic_tree, write_tables
from openi_tree import write_image, write_projections, write_report
from planner import Planner, jobs_of

EXAMPLES = {
    "own_images": (("own_images",), {"cohort_shards": 1, "frames_shard": 8}),
    "openi": (("openi",), {"cohort_shards": 1, "frames_shard": 16}),
    "mimic": (("mimic",), {"cohort_shards": 1, "frames_shard": 64}),
    "laptop": (("laptop",), {"phantom": 1, "frames_shard": 2, "figures_panels": 1}),
    "test_split": (("test_split",), {"phantom": 1, "frames_shard": 3, "training_run": 1, "evaluation_run": 2}),
    "paper_engines": (
        ("laptop", "paper_engines"),
        {"weights_radedit": 1, "weights_hybridgnet": 1, "weights_cxas": 1, "weights_scaled_yolov4": 1}
        | {"reports_structured": 1, "reports_mapping": 1},
    ),
    "semisyn": (("mimic", "semisyn"), {"semisyn_healthy_shard": 64, "semisyn_dataset_export": 6}),
    "medground": (
        ("laptop", "medground"),
        {"medground_sources_read": 10, "medground_dataset_lines": 1, "vlm_tuning_run": 2, "medground_scoring_run": 3},
    ),
    "radvlm": (
        ("mimic", "radvlm"),
        {"radvlm_sources_read": 5, "radvlm_sources_on_mimic": 2, "radvlm_sources_frames": 320},
    ),
    "radvlm_table6": (
        ("mimic", "radvlm", "radvlm_table6"),
        {"radvlm_instructions_mix": 7, "vlm_tuning_run": 7, "radvlm_evaluation_scores": 7, "weights_model": 1},
    ),
    "radvlm_table6_ours": (
        ("mimic", "radvlm", "radvlm_table6", "radvlm_table6_ours"),
        {"radvlm_instructions_mix": 11, "vlm_tuning_run": 14, "radvlm_evaluation_scores": 14, "weights_sam": 1}
        | {"radvlm_evaluation_head": 1, "radvlm_evaluation_segmenter_run": 117},
    ),
    "radvlm_table6_embedded": (
        ("radvlm_table6_embedded",),
        {"phantom": 1, "radvlm_instructions_mix": 7, "vlm_tuning_run": 7, "radvlm_evaluation_scores": 7},
    ),
    "radvlm_masks": (
        ("mimic", "radvlm", "radvlm_masks"), {"weights_sam": 1, "vlm_tuning_run": 1, "vlm_answers_run_masks": 2},
    ),
    "language_model_server": (
        ("laptop", "language_model_server"), {"reports_structured": 2, "reports_mapping": 1},
    ),
}  # fmt: skip
"""{example: (the files given to --configfile, {rule: number of its jobs})}."""


ASKED = {"semisyn": ["semisyn", "all"], "medground": ["medground", "medground_scoring", "review", "all"],
         "radvlm": ["radvlm_sources", "all"], "radvlm_table6": ["radvlm_evaluation", "all"],
         "radvlm_masks": ["results/vlm/radvlm_masks/answers/radvlm_test.h5",
                          "results/vlm/radvlm_masks/answers/radvlm_exchanged.h5", "all"],
         "radvlm_table6_ours": ["radvlm_evaluation", "all"],
         "radvlm_table6_embedded": ["radvlm_evaluation", "all"],
         "test_split": ["evaluation", "all"]}  # fmt: skip
"""Targets of the examples that a bare run is not asked for."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the examples name."""
    xray = encoded(dataset(stored_values(picture(200, 180), 12, False), 12))
    folder = tmp_path_factory.mktemp("examples")
    write_csv(
        folder / "manifest.csv",
        ("subject_id", "study_id", "image_id", "image_path", "findings", "view"),
        [("p001", "s001", "i001", "i001.dcm", "The lungs are clear.", "PA")],
    )
    (folder / "i001.dcm").write_bytes(xray)
    write_report(folder, 1, ["CXR1_1_IM-0001-3001"])
    write_image(folder, "CXR1_1_IM-0001-3001.png")
    write_projections(folder, [("1_IM-0001-3001.dcm.png", "Frontal")])
    mimic_tree(folder / "mimic-cxr/2.1.0", xray)
    (folder / "mimic-cxr-jpg/2.1.0").mkdir(parents=True)
    write_tables(folder / "mimic-cxr-jpg/2.1.0")
    for name in (one for names in list_placed_files("weights").values() for one in names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for source in yaml.safe_load((ROOT / "examples/radvlm.yaml").read_text())["radvlm"]["sources"]["list"].values():
        (folder / source["path"]).mkdir(parents=True, exist_ok=True)
    (folder / "medsegbench").mkdir()
    told = yaml.safe_load((ROOT / "examples/medground.yaml").read_text())
    for source in told["medground"]["sources"]["sets"].values():
        if source["kind"] == "lvit":
            (folder / source["folder"]).mkdir(exist_ok=True)
        else:
            (folder / source["npz"]).touch()
    for run in told["vlm"]["tuning"]["runs"].values():
        (folder / run["model"]).mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def planner():
    with Planner(ROOT) as started:
        yield started


def test_every_example_is_tried():
    assert {path.stem for path in (ROOT / "examples").iterdir()} == set(EXAMPLES)


@pytest.mark.parametrize("name", every(4, EXAMPLES))
def test_an_example_plans_a_whole_run(name, place, planner):
    files, wanted = EXAMPLES[name]
    settings = [ROOT / "examples" / f"{file}.yaml" for file in files]
    status, text = planner.ask(
        ["--snakefile", ROOT / "Snakefile", "--directory", place, "--cores", 2, "--dry-run", "--configfile", *settings,
         "--", *ASKED.get(name, [])]
    )  # fmt: skip
    assert status == 0, text
    jobs = [job.rule for job in jobs_of(text)]
    assert {rule: jobs.count(rule) for rule in wanted} == wanted
    assert "page_index" in jobs


def test_a_server_asks_for_no_gpu(place, planner):
    settings = [ROOT / "examples" / f"{file}.yaml" for file in ("laptop", "language_model_server")]
    _, text = planner.ask(
        ["--snakefile", ROOT / "Snakefile", "--directory", place, "--cores", 2, "--dry-run", "--configfile", *settings]
    )
    (asked,) = {job.resources.get("gpu", "0") for job in jobs_of(text) if job.rule == "reports_structured"}
    assert asked == "0"


@pytest.mark.parametrize(("transport", "jobs"), [("offline", 1), ("server", 8)])
def test_a_language_model_in_the_job_filters_all_sources_of_radvlm_at_once(place, planner, tmp_path, transport, jobs):
    radvlm = {"filtered": {"engine": "vllm"}, "llm": {"model": "nobody/nothing"}}
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump({"radvlm": radvlm, "llm": {"transport": transport}}))
    settings = [*(ROOT / "examples" / f"{file}.yaml" for file in ("mimic", "radvlm")), more]
    status, text = planner.ask(
        ["--snakefile", ROOT / "Snakefile", "--directory", place, "--cores", 2, "--dry-run", "--configfile", *settings,
         "--", "radvlm_filtered"]
    )  # fmt: skip
    assert status == 0, text
    asked = [job for job in jobs_of(text) if job.rule == "radvlm_filtered_source"]
    assert len(asked) == jobs
    assert {job.resources.get("gpu", "0") for job in asked} == {"1" if transport == "offline" else "0"}


@pytest.mark.slow
@pytest.mark.parametrize("changed", every(2, [{"sources": {"uncertain": "present"}}, {"filtered": {"engine": "none"}}]))
def test_an_ablation_of_the_facts_plans_the_jobs_of_its_example(place, planner, tmp_path, changed):
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump({"radvlm": changed}))
    files, wanted = EXAMPLES["radvlm_table6_ours"]
    settings = [*(ROOT / "examples" / f"{file}.yaml" for file in files), more]
    status, text = planner.ask(
        ["--snakefile", ROOT / "Snakefile", "--directory", place, "--cores", 2, "--dry-run", "--configfile", *settings,
         "--", "radvlm_evaluation"]
    )  # fmt: skip
    assert status == 0, text
    jobs = [job.rule for job in jobs_of(text)]
    assert {rule: jobs.count(rule) for rule in wanted} == wanted
    assert jobs.count("radvlm_filtered_source") == (8 if "filtered" in changed else 1)  # a model reads all sources


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "test_model", "asking", "gpus"),
    [("offline", "", 1, {"1"}), ("offline", "a/c", 2, {"1"}), ("server", "", 0, set())],
)
def test_a_language_model_in_the_job_is_asked_for_all_conversations_at_once(
    place, planner, tmp_path, transport, test_model, asking, gpus
):
    more = tmp_path / "more.yaml"
    radvlm = {"conversations": {"engine": "vllm", "test_llm": {"model": test_model}}}
    more.write_text(yaml.safe_dump({"radvlm": radvlm, "llm": {"transport": transport}}))
    settings = [*(ROOT / "examples" / f"{file}.yaml" for file in ("mimic", "radvlm")), more]
    status, text = planner.ask(
        ["--snakefile", ROOT / "Snakefile", "--directory", place, "--cores", 2, "--dry-run", "--configfile", *settings,
         "--", "radvlm_conversations"]
    )  # fmt: skip
    assert status == 0, text
    jobs = jobs_of(text)
    asked = [job for job in jobs if job.rule == "radvlm_conversations_told"]
    parts = [job for job in jobs if job.rule == "radvlm_conversations_part"]
    assert (len(asked), {job.resources.get("gpu", "0") for job in asked}) == (asking, gpus)
    assert len(parts) == 8
    assert {job.resources.get("gpu", "0") for job in parts} == {"0"}

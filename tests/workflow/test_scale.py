"""At the size of MIMIC-CXR: the simulated cohort, how many jobs there are, what the workflow's start may cost."""

import ast
import csv
import gzip
import re
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
import yaml

import parsed
from cohort_runs import run_cohort
from conftest import ROOT, imported, write_settings
from cxr.workflow.code_digest import imported_names
from profiles import EDITS_BY_RADEDIT, PAPER_ON_A_GPU, group_sizes

sys.path.insert(0, str(ROOT / "benchmarks"))

import mimic
import mimic_plan
import scale

SOURCES = sorted((ROOT / "scripts").rglob("*.py"))


def names_by_the_whole_tree(source: str) -> set[str]:
    """The oracle: every import statement that Python's own parser finds."""
    return imported(ast.walk(ast.parse(source)))


def test_imports_are_found_without_parsing_all_of_a_module():
    assert len(SOURCES) > 100
    for path in SOURCES:
        assert imported_names(path) == names_by_the_whole_tree(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "source",
    [
        "import a, b.c as d  # and (more\nfrom e.f import g as h, i",
        "from a import (  # not ) the end\n    b,\n    c as d,\n)\nimport e",
        "from a import(b, c)\nfrom  d\timport  e",
        "def f():\n    import a\n    if f:\n      from b import c\n",
        "try: import a\nexcept ImportError: from b import c\n",
        "x = 1; import a; from b import c",
        "from a \\\n    import b\nimport c, \\\n    d\nfrom \\\n  e import f",
        "from . import a\nfrom .b import c\nfrom d import *",
        "importer = 1\nimported(x)\nfrom_x = 2\nyields = lambda: 0\n",
        "import a\r\nfrom b import (\r\n    c,\r\n)\r\n",
        "class A:\n    from a import b\n\n    async def f(self):\n        from c import (d,\n e)\n",
    ],
)
def test_imports_of_any_form_are_found(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_bytes(source.encode())
    assert imported_names(path) == names_by_the_whole_tree(source)


def test_a_text_that_reads_like_an_import_hides_none(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""\nimport a lot of it\nfrom b import c\n"""\nimport d\n')
    assert imported_names(path) >= {"d"}


IMAGES = 2000


@pytest.fixture(scope="module")
def cohort() -> mimic.Cohort:
    return mimic.plan(IMAGES, seed=7)


def test_the_simulation_has_the_numbers_of_mimic_cxr(cohort):
    whole = mimic.shares(mimic.IMAGES, mimic.VIEWS)
    assert whole == mimic.VIEWS
    assert sum(mimic.VIEWS.values()) == mimic.IMAGES
    assert mimic.VIEWS["PA"] + mimic.VIEWS["AP"] == 243_334
    assert sum(mimic.SPLITS.values()) == mimic.PATIENTS
    images = cohort.images
    assert (images.height, cohort.studies.height, images["subject_id"].n_unique()) == (IMAGES, 1208, 347)
    assert Counter(images["ViewPosition"]) == {"AP": 781, "PA": 510, "LATERAL": 439, "LL": 186, "": 84}
    assert images["study_id"].n_unique() == cohort.studies.height == cohort.studies["study_id"].n_unique()
    assert images["dicom_id"].n_unique() == IMAGES
    for owned, owner in (("study_id", "subject_id"), ("subject_id", "split")):
        assert images.group_by(owned).agg(pl.col(owner).n_unique())[owner].max() == 1


def test_no_simulated_id_can_be_a_real_one(cohort):
    assert set(cohort.images["subject_id"].str.slice(0, 1)) == {"9"}  # MIMIC's begin with 1
    assert set(cohort.images["study_id"].str.slice(0, 1)) == {"8"}  # MIMIC's begin with 5


def test_a_seed_gives_the_same_cohort(cohort):
    assert mimic.plan(IMAGES, seed=7).images.equals(cohort.images)
    assert not mimic.plan(IMAGES, seed=8).images.equals(cohort.images)


def counted_by_hand(cohort: mimic.Cohort, tables: bool) -> Counter:
    """The oracle, image by image: where no field holds the view, what was ordered tells it of a study's only image."""
    sizes = Counter(cohort.images["study_id"])
    found: Counter = Counter()
    for row in cohort.images.iter_rows(named=True):
        if not row["there"]:
            found.update(["missing_file"] if tables else [])
        elif row["header_view"]:
            found["accepted" if row["header_view"] in ("AP", "PA") else "not_frontal"] += 1
        else:
            found["accepted" if sizes[row["study_id"]] == 1 else "unknown_view"] += 1
    return found


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.slow
def test_the_cohort_stage_reads_the_simulation_image_by_image(tmp_path, cohort, tables):
    mimic.write(cohort, tmp_path / "mimic", tables)
    result = run_cohort(tmp_path, source="mimic", root=str(tmp_path / "mimic"))
    expected = counted_by_hand(cohort, tables)
    assert expected == cohort.expected(tables)
    assert min(expected.values()) > 0
    result.check_conserved(sum(expected.values()))
    assert Counter(result.reasons.values()) == {name: n for name, n in expected.items() if name != "accepted"}
    assert result.accepted.height == expected["accepted"]

    rows = {row["dicom_id"]: row for row in cohort.images.iter_rows(named=True)}
    reports = {name for name, there in cohort.studies.select("study_id", "there").iter_rows() if there}
    for row in result.accepted.iter_rows(named=True):
        told = rows[row["image_id"]]
        assert (row["study_id"], row["subject_id"]) == (told["study_id"], told["subject_id"])
        assert row["path"] == str(tmp_path / "mimic" / told["path"])
        assert row["view"] == (told["header_view"] or "AP")
        assert (row["report_path"] is not None) == (row["study_id"] in reports)
        if tables:
            assert row["split"] == told["split"]
            assert row["acquired"].startswith(told["StudyDate"])
    assert result.accepted["report_path"].null_count() > 0 or len(reports) == cohort.studies.height


def test_the_tables_have_the_official_columns(tmp_path, cohort):
    mimic.write(cohort, tmp_path)
    with gzip.open(tmp_path / "mimic-cxr-2.0.0-metadata.csv.gz", "rt") as file:
        assert next(csv.reader(file)) == list(mimic.METADATA)
    with gzip.open(tmp_path / "cxr-record-list.csv.gz", "rt") as file:
        header, first = (next(csv.reader(file)) for _ in range(2))
    assert header == ["subject_id", "study_id", "dicom_id", "path"]
    assert first[3] == f"files/p{first[0][:2]}/p{first[0]}/s{first[1]}/{first[2]}.dcm"
    inodes = {path.stat().st_ino for path in tmp_path.rglob("*.dcm")}
    assert len(inodes) < 15  # names of a few small files


@pytest.fixture(scope="module")
def planned(tmp_path_factory, cohort) -> tuple[Path, mimic_plan.Cost]:
    """A dry run of everything in 64 shards with ten threshold sets, and its folder."""
    folder = tmp_path_factory.mktemp("planned")
    mimic.write(cohort, folder / "mimic")
    write_settings(folder, mimic_plan.settings(folder / "mimic"))
    return folder, mimic_plan.measured(*mimic_plan.snakemake(folder, "-n", "--cores", 2))


@pytest.mark.slow
def test_a_dry_run_of_ten_sets_in_64_shards(planned):
    _, cost = planned
    jobs = mimic_plan.jobs_of(cost.printed)
    sharded = {"frames", "reports", "organs", "anomaly", "anatomy", "boxes"}
    each_set = {"masks_shard": 640, "masks_index": 10, "dataset_pairs": 10}
    assert {rule: jobs[rule] for rule in each_set} == each_set
    assert {rule: jobs[f"{rule}_shard"] for rule in sharded} == dict.fromkeys(sharded, 64)
    assert jobs["masks_sweep"] == 64
    assert jobs["cohort_shards"] == 1
    assert sum(jobs.values()) == mimic_plan.expected_jobs(10) + 1  # and the cohort
    assert cost.mb < mimic_plan.MEMORY_MB
    asked = mimic_plan.asked_of(cost.printed)
    assert jobs.keys() == asked.keys()
    assert all(mb >= 1000 and minutes > 0 for rule, (mb, minutes) in asked.items() if rule != "all")
    outputs = mimic_plan.outputs_of(cost.printed)
    assert len(outputs) == len(set(outputs)) > 3000


@pytest.mark.slow
def test_a_search_of_configurations_has_one_job_for_each_and_not_for_each_shard(tmp_path, cohort):
    mimic.write(cohort, tmp_path / "mimic")
    write_settings(tmp_path, mimic_plan.selection_settings(tmp_path / "mimic", tmp_path / "model"))
    cost = mimic_plan.measured(*mimic_plan.snakemake(tmp_path, "-n", "--cores", 2, "semisyn_selection"))
    jobs = mimic_plan.jobs_of(cost.printed)
    edits = {rule: count for rule, count in jobs.items() if rule.startswith("semisyn_editing")}
    assert edits == {"semisyn_editing_diffusion": 20, "semisyn_editing_radedit": 1}
    assert [jobs[f"semisyn_realism_{name}"] for name in ("organs", "boxes", "measures", "scores")] == [21] * 4
    assert cost.mb < mimic_plan.SEMISYN_MEMORY_MB


@pytest.mark.parametrize(
    ("parse_s", "core_s", "mb", "broken"),
    [
        (1.0, 10.0, 500, []),
        (1.01, 10.0, 500, ["the parse took 1.01 core s, more than 1"]),
        (1.0, 60.0, 500, [f"{what} took 60.0 core s, more than 10" for what in ("now", "slurm", "done")]),
        (1.0, 10.0, 501, [f"{what} took 501 MB, more than 500" for what in ("now", "slurm", "done")]),
    ],
)
def test_a_plan_over_its_limits_breaks_them(tmp_path, monkeypatch, parse_s, core_s, mb, broken):
    """With made-up measurements; the wall's seconds, which lie on a busy machine, break nothing."""
    jobs = mimic_plan.expected_jobs(2 + len(mimic_plan.SETS))
    table = f"job  count\n---  ---\nall  {jobs}\ntotal  {jobs}\n"
    run = []

    def measured(*command: object) -> mimic_plan.Cost:
        run.append(command)
        printed = f"{parse_s}" if "parse" in command else "" if any("--touch" in words for words in run) else table
        return mimic_plan.Cost(1000.0, core_s, mb, printed)

    monkeypatch.setattr(mimic_plan, "measured", measured)
    report = mimic_plan.Report()
    mimic_plan.workflow_rows(tmp_path, report)
    names = {"now": f"snakemake -n, {jobs:,} jobs", "slurm": f"snakemake -n --profile slurm, {jobs:,} jobs"}
    names["done"] = "snakemake -n when all is done"
    assert report.broken == [re.sub(r"^(now|slurm|done)", lambda found: names[found[0]], words) for words in broken]
    assert sum("-n" in words for words in run) == (6 if core_s > 10 else 3)  # once more, for a machine's speed changes


def test_the_page_of_hours_and_room_is_what_the_script_prints():
    page = (ROOT / "docs/reference/scale.md").read_text(encoding="utf-8")
    tables = scale.report().strip().split("\n\n")
    assert len(tables) == 5
    assert all(table in page for table in tables)
    for unit in yaml.safe_load(scale.UNITS.read_text(encoding="utf-8"))["paper"].values():
        (row,) = re.findall(rf"^  \| `{unit['engine']}` \|.*$", page, flags=re.M)
        assert row.startswith(f"  | `{unit['engine']}` | {scale.told(unit['gpu_s'])} | {unit['gpu']} |")
        assert row.endswith(f"| {scale.told(unit['without_gpu_core_s'])} |")


ALONE = {
    "agreement_images": "once a reference, every annotated image",
    "cohort_shards": "once, a minute with tables, ten core minutes without, and all else waits for it",
    "dataset_layout": "once a set, every picture and mask as a file",
    "dataset_mimic_ils": "once, every mask of somebody's release",
    "inference_predict": "a large net on a GPU, for whoever waits for the answer",
    "vlm_answers_image": "a large net on a GPU, for whoever waits for the answer",
    "inference_paraphrased": "a large net on a GPU, for all pairs of a split",
    "inference_run": "a large net on a GPU, for all pairs of a split",
    "medground_dataset_entities": "once, every query of all sources, and millions of names",
    "medground_dataset_export": "once a format, every picture as a file",
    "medground_dataset_gallery": "once, pictures of every verdict",
    "medground_dataset_language": "once, every query of all sources",
    "medground_dataset_lines": "once, the queries of all sources",
    "medground_dataset_units": "once, every picture of the audit",
    "medground_queries_told": "once, or of a shard where a server answers: a language model",
    "medground_scoring_comparison": "once, the scores of all runs",
    "medground_scoring_run": "once a run, every answer, bootstrap by image",
    "medground_scoring_zero_shot": "once a run, every answer, bootstrap by image",
    "medground_sources_read": "once a source, its files",
    "medground_verification_told": "once, or of a shard where a server answers: a language model",
    "organs_chexmask": "once, a table of 15 GB",
    "paraphrase_instructions": "once a set, every line of the pairs",
    "paraphrase_wordings": "once a set, a language model on a GPU",
    "phantom": "the embedded cohort, which is never of MIMIC-CXR's size",
    "radvlm_evaluation_asked": "once, the test lines",
    "radvlm_evaluation_comparison": "once, the scores of all runs",
    "radvlm_evaluation_head": "once a run, its masks of the ILS pairs",
    "radvlm_evaluation_image_masks": "as vlm_answers_image, for whoever waits for the masks",
    "radvlm_evaluation_judge_check": "once, some conversations several times",
    "radvlm_evaluation_judged": "once a run, every conversation; a language model where it is the judge",
    "radvlm_evaluation_read": "once a model, its outputs",
    "radvlm_evaluation_segmenter_asked": "once a run, set and source, the rules on answers with [SEG]",
    "radvlm_evaluation_segmenter_run": "as the inference, once a run, set and source",
    "radvlm_evaluation_scores": "once a run, every answer, bootstrap by patient",
    "radvlm_conversations_part": "twice a source, the rules on every report",
    "radvlm_conversations_told": "once a model, loaded for all sources",
    "radvlm_filtered_source": "once a source, the rules on every report; once for all, a language model in the job",
    "radvlm_instructions_llava": "once a mix, every picture as a file",
    "radvlm_instructions_mix": "once a mix, all its lines",
    "radvlm_instructions_part": "once a mix and source, every fact of it",
    "radvlm_sources_on_mimic": "once a source, its files",
    "radvlm_sources_labels": "a BERT on every report of a shard, by its operations an hour of a core",
    "radvlm_sources_read": "once a source, its files",
    "release_mixes": "once a mix, every line, and every picture that is published",
    "release_package": "once a set, checksums of everything in it",
    "release_tables": "once a set, every picture and mask",
    "reports_agreement": "once, the rules on every report, 14 core minutes",
    "reports_mapping": "once, a language model on a GPU",
    "reports_structured": "once, a language model on a GPU, minutes to load, then every report",
    "review_query_pages": "once, every picture of MedGround's test split in memory",
    "review_pages": "once, every picture of the test split in memory",
    "semisyn_dataset_cohort": "once, a folder of images for ILS",
    "semisyn_dataset_export": "once a size and format, every picture as a file",
    "semisyn_dataset_pictures": "once, every picture of the data set",
    "semisyn_dataset_tables": "once, the tables of all edited images",
    "semisyn_detection_scores": "once, every box of all detectors, bootstrap by patient",
    "semisyn_detectors_model": "once a training",
    "semisyn_detectors_pictures": "once a reference, every annotated image",
    "semisyn_detectors_predictions": "once a training and reference, a net on every image",
    "semisyn_detectors_roles": "once, the boxes of all references",
    "semisyn_priors_fit": "once, a fit of many laws",
    "semisyn_prompts_mine": "once, every report",
    "semisyn_readers_pages": "once, every picture of the readers in memory",
    "semisyn_readers_units": "once, pictures of all shards",
    "semisyn_realism_scores": "once a configuration, bootstrap by patient",
    "semisyn_selection_choice": "once, the scores of all configurations",
    "tables_counts": "once, every line of the pairs of all sets, 8 GB of ten",
    "tables_truth": "the embedded cohort, which is never of MIMIC-CXR's size",
    "training_base": "once, the small model of the engine lite",
    "training_published": "once a run, a model of 14 GB",
    "training_run": "days",
    "training_untrained": "once a run, a model of 14 GB",
    "vlm_answers_read": "once a set, every answer that another program gave",
    "vlm_answers_run": "once a run and set, a large net on a GPU, minutes to load, then every question",
    "vlm_answers_run_masks": "as vlm_answers_run, of a run with a head",
    "vlm_tuning_run": "days",
    "vlm_tuning_untrained": "once a run, at most 200 questions to a large net on a GPU, where its convention is probed",
    "training_sam": "once a run, a model of 14 GB",
    "weights_model": "once a model, the digests of up to 16 GB",
    **{
        f"weights_{name}": "once, a file of up to 10 GB that somebody placed there"
        for name in [
            "chexbert",
            "cxas",
            "hybridgnet",
            "inception",
            "lisa",
            "rosalia",
            "sam",
            "scaled_yolov4",
            "ultralytics",
            "xrv",
        ]
    },
}
"""Rules whose jobs are neither local nor of a group, and why: long, or of a kind that comes once."""


DEVICES = ({}, PAPER_ON_A_GPU | EDITS_BY_RADEDIT)
"""Settings without a GPU, and with one that every engine uses which can."""


def of_a_shard(rule: parsed.Rule) -> bool:
    """Return whether a rule has a job for each shard: its log has every wildcard of the job."""
    return "{shard" in rule.log[0]


def groups() -> dict[str, set[str]]:
    """Return {rule: groups of its jobs}; two where it depends on the device."""
    found: dict[str, set[str]] = {}
    for settings in DEVICES:
        for name, rule in parsed.working(settings).items():
            found.setdefault(name, set()).update({rule.group} - {""})
    return found


def test_a_job_is_local_of_a_group_or_long():
    rules = parsed.working()
    local = {name for name, rule in rules.items() if rule.local}
    grouped = {name: found for name, found in groups().items() if found}
    assert not local & grouped.keys()
    assert rules.keys() - local - grouped.keys() == ALONE.keys()
    assert set().union(*groups().values()) == group_sizes().keys()
    of_shards = {name for name, rule in rules.items() if of_a_shard(rule)}
    models = {"medground_queries_told", "medground_verification_told", "radvlm_sources_labels"}
    assert of_shards - grouped.keys() == models
    stages = {f"{stage}_shard" for stage in ("frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks")}
    edited = {"editing_lite", "healthy_shard", "placement_shard"} | {
        f"realism_{name}" for name in ("boxes", "measures", "organs", "reference")
    }
    stages |= {f"semisyn_{name}" for name in edited}
    stages |= {"medground_sources_cohort", "semisyn_realism_reference"}
    stages |= {"radvlm_sources_own", "radvlm_sources_frames"}
    stages |= {f"medground_{name}_shard" for name in ("regions", "queries", "verification")}
    assert of_shards == stages | models | {"masks_sweep", "release_dicom"}


@pytest.mark.parametrize(("device", "engines"), [("cpu", "lite"), ("gpu", "paper")])
def test_no_group_of_a_shards_jobs_is_shorter_than_ten_minutes(device, engines):
    """By the measured unit costs, of the mean shard on one core; what a set or the evaluation has once is left out.

    64 shards may leave a group that is smaller than the others. What all shards do in one job cannot take longer.
    """
    units = yaml.safe_load(scale.UNITS.read_text(encoding="utf-8"))
    works = [work for work in scale.works(units, engines, 10, {}) if work.stage != "lesion masks"]
    seconds = {work.stage.split()[0]: work.gpu_s if device == "gpu" else work.core_s for work in works}
    start = next(work.core_s for work in works if work.stage == "start of jobs")
    shard = units["counts"]["studies"]["number"] / scale.SHARDS
    for name, unit in units["asked"].items():
        cost = unit.get("gpu_s", 0) if device == "gpu" else unit["core_s"]
        seconds[name] = cost * units["counts"][unit["per"]]["number"] / units["counts"]["studies"]["number"]
    rules = {name: rule for settings in DEVICES for name, rule in parsed.working(settings).items()}
    of_shards = set().union(*(found for name, found in groups().items() if of_a_shard(rules[name])))
    chosen = {name for name in of_shards if name.endswith(f"-{device}") or (device == "cpu" and "-" not in name)}
    assert len(chosen) == {"cpu": 17, "gpu": 6}[device]
    # a group without a unit cost is a KeyError
    stages = {name: name.removesuffix(f"-{device}") for name in chosen}
    for name in chosen:
        fewest = scale.SHARDS % group_sizes()[name] or group_sizes()[name]
        long = fewest * seconds[stages[name]] * shard + (fewest + 1) * start >= 600
        assert long or fewest == scale.SHARDS, name


def test_hours_follow_from_unit_costs(tmp_path):
    """By hand: 227,835 images at 420 passes, 92.8 a second, and the autoencoder's 3.63 TFLOP at 11.2 a second."""
    engines = tmp_path / "engines.tsv"
    rows = {"engine": ["radedit", "radedit", "radedit"], "device": ["CPU, 1 thread", "GPU X", "GPU X"]}
    pl.DataFrame(rows | {"s_per_image": [2630.0, 3.0, 2.0]}).write_csv(engines, separator="\t")
    unmeasured = tmp_path / "costs.yaml"
    unmeasured.write_text(scale.UNITS.read_text(encoding="utf-8").partition("measured:")[0] + "measured: []\n")
    hours = f"{round(420 / 92.8 + 3.63 / 11.2, 2) * 227_835 / 3600:,.0f}"
    assert f"| anomaly | 227,835 | 2.4 | {hours} | others, A100 | 8,350 | 1.9 | 3.1 |" in scale.report(units=unmeasured)
    assert f"| anomaly | 227,835 | 2.4 | {2 * 227_835 / 3600:,.0f} |" in scale.report(engines=str(engines))
    assert "| 1 | 8 |" in scale.report(gpus=(1,))
    counted = (339.2 / 990 + 3.63 / 67) / 0.45
    assert (
        f"| anomaly | 339.2 bfloat16 + 3.63 float32 | {counted:.2f} | {counted * 227_835 / 3600:.0f} |"
        in scale.report()
    )

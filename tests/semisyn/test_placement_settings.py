"""Settings of priors and placement: a wrong one is one sentence before any job; what a rule gets."""

import pytest
import yaml

from cxr.base.errors import UserError
from cxr.semisyn.placement.quota import PlanOptions
from cxr.workflow.params import stage_options
from cxr.workflow.plan_semisyn import SemisynPlan
from cxr.workflow.settings import Settings, SettingsError, read
from nodules import NODULE, written

SHARDS = ["00", "01"]


def plan_of(**semisyn):
    settings = read({"semisyn": semisyn})
    return SemisynPlan(settings, stage_options(settings), SHARDS)


@pytest.mark.parametrize(
    ("semisyn", "words"),
    [
        ({"findings": ["nodule"]}, ["semisyn.findings names 'nodule'", "atelectasis", "findings_file"]),
        (
            {"references": {"mine": {"path": "x.json", "classes": {"Opaque": "opacities"}}}},
            ["references.mine.classes names 'opacities'", "opacity"],
        ),
        ({"findings_file": "nowhere.yaml"}, ["semisyn.findings_file", "'nowhere.yaml'"]),
        (
            {"priors": {"source": "fit", "reference": "mine"}, "references": {"mine": {"path": "nowhere.csv"}}},
            ["semisyn.references.mine.path", "'nowhere.csv'"],
        ),
        ({"priors": {"zones_table": "nowhere.csv"}}, ["semisyn.priors.zones_table", "nowhere.csv"]),
        ({"priors": {"source": "fit"}}, ["semisyn.priors", "reference is empty"]),
        ({"priors": {"source": "fit", "reference": "other"}}, ["priors.reference is 'other'", "has none"]),
        ({"priors": {"sizes": "drawn"}}, ["semisyn.priors.sizes"]),
        ({"findings": ["edema", "edema"]}, ["findings names 'edema' twice"]),
        ({"findings": []}, ["semisyn.findings is []"]),
        ({"placement": {"most_per_image": 0}}, ["placement.most_per_image is 0"]),
    ],
)
def test_a_wrong_setting_stops_with_one_sentence(semisyn, words):
    with pytest.raises((SettingsError, UserError)) as caught:
        plan_of(**semisyn)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_a_prior_that_is_none_in_a_users_file_stops_the_parse(tmp_path):
    broken = yaml.safe_load(yaml.safe_dump(NODULE))
    broken["findings"]["nodule"]["prior"]["size"]["sigma"] = [[1, 2], [2, 1]]
    with pytest.raises(UserError, match=r"findings_file .*nodule\.prior\.size\.sigma .* positive definite"):
        plan_of(findings_file=str(written(tmp_path, broken)))


def test_a_users_finding_is_known_to_findings_maps_and_references(tmp_path):
    path, boxes = str(written(tmp_path)), tmp_path / "boxes.json"
    boxes.write_text("{}")
    plan = plan_of(
        findings_file=path,
        findings=["nodule", "edema"],
        references={"mine": {"path": str(boxes), "classes": {"Spot": "nodule"}}},
    )
    assert plan.findings_file == path
    assert plan.prior_files == {"findings_file": path}


def test_a_fit_reads_its_reference_and_all_shards(tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("")
    plan = plan_of(
        priors={"source": "fit", "reference": "mine"},
        references={"mine": {"format": "ms_cxr", "path": str(table), "role": "train"}},
    )
    assert plan.prior_files["boxes"] == str(table)
    assert plan.prior_files["organs"] == ["results/organs/00.h5", "results/organs/01.h5"]
    assert plan.prior_formats == ["annotations.ms_cxr"]
    # whose patients leave the pool
    assert plan.healthy_files["reference_mine"] == str(table)


def test_a_fit_on_a_references_own_images_reads_no_shard_of_the_cohort(tmp_path):
    (tmp_path / "people.csv").write_text("")
    reference = {"format": "vindr", "path": str(tmp_path / "people.csv"), "role": "train", "images": str(tmp_path)}
    plan = plan_of(priors={"source": "fit", "reference": "mine"}, references={"mine": reference})
    folder = "results/semisyn/references/mine"
    assert {name: plan.prior_files[name] for name in ("own_images", "own_frames", "own_organs")} == {
        "own_images": f"{folder}/images.parquet", "own_frames": f"{folder}/frames.h5",
        "own_organs": f"{folder}/organs.h5",
    }  # fmt: skip
    assert not {"images", "frames", "organs"} & plan.prior_files.keys()
    # its pictures are listed and decoded, whether or not a detector learns from it
    assert plan.detectors.image_sources == {"mine": str(tmp_path)}
    table = str(tmp_path / "people.csv")
    zones_plan = plan_of(priors={"source": "fit", "reference": "mine", "zones_table": table},
                    references={"mine": reference})  # fmt: skip
    assert zones_plan.prior_files["organs"] == ["results/organs/00.h5", "results/organs/01.h5"]


def test_what_only_a_fit_depends_on_is_the_default_without_one():
    def options(**priors):
        return stage_options(read({"semisyn": {"priors": priors}}))["semisyn_priors"]

    assert options(min_boxes=9) == options()


def test_the_plan_of_jobs_takes_sizes_from_dataset_and_selection():
    told = stage_options(Settings())["semisyn_placement_plan"]
    assert {name: told[name] for name in ("per_finding", "default_most", "most_per_image", "samples", "spare")} == {
        "per_finding": None, "default_most": 6, "most_per_image": 2, "samples": 35, "spare": 0.05,
    }  # fmt: skip
    large = {"cohort": {"source": "manifest", "manifest": "m.csv"}}
    assert stage_options(read(large))["semisyn_placement_plan"]["default_most"] == 5000
    sized = stage_options(read(large | {"semisyn": {"dataset": {"sizes": [70, 700]}}}))["semisyn_placement_plan"]
    assert PlanOptions(**sized).fixed == 100
    assert PlanOptions(**told).fixed is None

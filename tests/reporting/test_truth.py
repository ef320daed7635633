"""What was made of the embedded cohort beside its truth: exact values on tiny inputs."""

import numpy as np
import polars as pl

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_lines, write_table
from cxr.reporting.tables import truth
from cxr.reporting.tables.truth import run_truth


def painted(**boxes: tuple[int, int, int, int]) -> dict[str, np.ndarray]:
    masks = {}
    for name, (top, bottom, left, right) in boxes.items():
        mask = np.zeros((64, 64), bool)
        mask[top:bottom, left:right] = True
        masks[name.replace("_", " ")] = mask
    return masks


TRUTH = painted(
    edema=(0, 10, 0, 20),
    effusion=(50, 60, 0, 10),
    right_lung_base=(40, 64, 0, 32),
    left_lung_base=(40, 64, 32, 64),
    right_lung=(0, 64, 0, 32),
    left_lung=(0, 64, 32, 64),
)


def finding(number: int, target: str | None, reported: list[str], grounded: list[str], mask: str | None) -> dict:
    return {
        "image_id": "a",
        "finding": number,
        "target": target,
        "reported": reported,
        "grounded": grounded,
        "mask_id": mask,
    }


def test_mask_measures_by_hand():
    masks = {"m1": painted(x=(0, 10, 0, 10))["x"], "m2": painted(x=(50, 60, 0, 30))["x"]}
    findings = pl.DataFrame(
        [
            finding(0, "edema", ["right lung", "left lung"], ["right lung"], "m1"),
            finding(1, "effusion", ["right lung base", "left lung base"], ["left lung base"], "m2"),
            finding(2, None, ["right lung"], [], None),
        ]
    )
    rows = truth.tabulate_truth(truth.mask_measures(findings, masks.get, {"a": TRUTH}.get)).to_dicts()
    # edema: 2 * 100 / (100 + 200); effusion: 2 * 100 / (300 + 100)
    assert rows[:3] == [
        {"measure": "mask Dice", "lesion": "edema", "value": 0.667, "trials": 1},
        {"measure": "mask Dice", "lesion": "effusion", "value": 0.5, "trials": 1},
        {"measure": "mask Dice", "lesion": "all", "value": 0.583, "trials": 2},
    ]
    # grounded: edema right (true), effusion left (false); truly there: edema right, effusion right
    assert {"measure": "grounding precision", "lesion": "all", "value": 0.5, "trials": 2} in rows
    assert {"measure": "grounding recall", "lesion": "all", "value": 0.5, "trials": 2} in rows
    assert truth.tabulate_truth(truth.mask_measures(findings, masks.get, {}.get))["value"].to_list() == [None] * 9


def report_tuple(
    lesion: str, labels: list[str], certainty: str = "definitive", presence: str = "positive", **more
) -> dict:
    return {
        "lesion_type": lesion,
        "predicted_lesion_type": None,
        "labels": labels,
        "certainty": certainty,
        "presence": presence,
        "denies": True,
    } | more


def test_text_measures_by_hand():
    written = {
        "study_id": "s",
        "report_fault": None,
        "findings": [
            {"target": "edema", "labels": ["right lung", "left lung"], "certainty": "definitive"},
            {"target": "atelectasis", "labels": ["left lung base"], "certainty": "tentative"},
            {"target": "nodule", "labels": ["right lung"], "certainty": "definitive"},
        ],
        "negatives": ["effusion", "pneumonia"],
    }
    line = {
        "study_id": "s",
        "tuples": [
            report_tuple("edema", ["right lung"]),
            report_tuple("edema", ["left lung"], "tentative"),
            report_tuple("opacity", ["right lung base"], "tentative", predicted_lesion_type="atelectasis"),
            report_tuple("consolidation", ["right lung"]),
            report_tuple("effusion", [], presence="negative"),
            report_tuple("opacity", [], presence="negative"),
            report_tuple("pneumonia", [], presence="negative", denies=False),
        ],
    }
    blank = {"study_id": "other", "report_fault": "empty_report", "findings": [], "negatives": []}
    lines = [line, {"study_id": "other", "tuples": [report_tuple("edema", [])]}, {"study_id": "strange", "tuples": []}]
    table = truth.tabulate_truth(truth.text_measures(lines, {"s": written, "other": blank})).filter(lesion="all")
    found = {name: (value, trials) for name, _, value, trials in table.rows() if name.startswith("text")}
    assert found == {
        "text precision": (0.667, 3),
        "text recall": (1.0, 2),
        "text labels": (0.5, 2),
        "text certainty": (1.0, 2),
        "text denial precision": (0.5, 2),
        "text denial recall": (0.5, 2),
    }


def test_run_truth_writes_every_set(tmp_path):
    write_lines(
        tmp_path / "truth.jsonl",
        [
            {
                "study_id": "s",
                "report_fault": None,
                "findings": [{"target": "edema", "labels": [], "certainty": "definitive"}],
                "negatives": [],
            }
        ],
    )
    with ShardWriter(tmp_path / "truth.h5", labels=list(TRUTH)) as writer:
        writer.append("a", mask=np.stack(list(TRUTH.values())))
    write_lines(tmp_path / "00.jsonl", [{"study_id": "s", "tuples": [report_tuple("edema", [])]}])
    findings, masks = [], []
    for name, box in (("default", (0, 10, 0, 20)), ("half", (0, 5, 0, 20))):
        findings.append(str(tmp_path / name / "findings.parquet"))
        write_table(findings[-1], pl.DataFrame([finding(0, "edema", ["right lung"], ["right lung"], "m1")]))
        masks.append(str(tmp_path / name / "00.h5"))
        with ShardWriter(masks[-1], key="mask_id") as writer:
            writer.append("m1", mask=painted(x=box)["x"])
    output = tmp_path / "truth.tsv"
    run_truth(
        truth_lines=str(tmp_path / "truth.jsonl"),
        truth_masks=str(tmp_path / "truth.h5"),
        reports=[str(tmp_path / "00.jsonl")],
        findings=findings,
        masks=masks,
        truth_table=str(output),
        thresholds=["default", "half"],
    )
    table = read_table(output)
    dice = table.filter((pl.col("measure") == "mask Dice") & (pl.col("lesion") == "edema"))
    assert dict(dice.select("thresholds", "value").iter_rows()) == {"default": 1.0, "half": 0.667}

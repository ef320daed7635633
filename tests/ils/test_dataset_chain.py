"""From the masks stage's input files to pairs and the released layout: the two stages share only files."""

import json

import numpy as np
import pytest

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LUNGS, zones_of
from cxr.ils.dataset import mimic_ils
from cxr.ils.masks import make_masks as masks_stage
from cxr.ils.masks.make_masks import run_index
from cxr.ils.masks.settings import MasksSettings
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read
from dataset_cases import WITNESSES, make
from masks_shard import outputs, said, write_inputs

SETTINGS = read({})


def picture() -> dict[str, np.ndarray]:
    """Two lungs of four bands each."""
    zones = {}
    for side, left in (("right", 60), ("left", 300)):
        for band, zone in enumerate(zones_of(side)):
            mask = np.zeros((512, 512), bool)
            mask[60 + 90 * band : 150 + 90 * band, left : left + 150] = True
            zones[zone] = mask
        zones[f"{side} lung"] = np.logical_or.reduce([zones[zone] for zone in zones_of(side)])
    return zones


def study(number: int, tuples: list[dict]) -> dict:
    """A study with something bright, and a box around it, in the right lung base."""
    anomaly = np.zeros((512, 512), np.uint8)
    anomaly[335:415, 70:200] = 120
    heart = np.zeros((512, 512), bool)
    heart[250:400, 220:360] = True
    return {
        "study_id": f"{50000000 + number}",
        "image_id": f"image-{number}",
        "subject_id": f"{10000000 + number}",
        "split": "train",
        "zones": picture(),
        "lungs": {lung: np.roll(picture()[lung], 12, axis=0) for lung in LUNGS},
        "heart": heart,
        "anomaly": anomaly,
        "image": anomaly,
        "boxes": [(62.0, 330.0, 208.0, 420.0, 0.9)],
        "tuples": tuples,
        "line": {
            "section_name": "findings",
            "section_text": "Text.",
            "sentences": ["Text."],
            "mentions_lungs": True,
            "comparison_only": False,
            "unknown_share": 0.0,
            "other_section": None,
            "digests": {"code": "c0de", "lexicon": "1ex1", "witnesses": "w0"},
            "witnesses": WITNESSES,
        },
    }


def denied(lesion: str) -> dict:
    return said(lesion, lesion=lesion) | {"presence": "negative"}


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("chain")
    base = ["right lung base"]
    studies = [
        study(1, [said("effusion", base, lesion="effusion")]),
        study(2, [said("opacity", base, certainty="tentative", predicted_lesion_type="atelectasis")]),
        study(3, [denied("effusion")]),
    ]
    given = stage_options(SETTINGS)["masks"]
    given["thresholds"] = SETTINGS.thresholds.sets["default"].as_dict()
    options = MasksSettings.from_dict(given)
    inputs, made = write_inputs(folder / "in", studies), outputs(folder / "00")
    masks_stage.run_shard(**inputs, **made, options=options, attrs={})
    final = make(folder, [made | {"reports": inputs["reports"]}])
    index = {name: str(folder / f"{name}.all.parquet") for name in ("index", "findings", "excluded")}
    run_index(masks=[made["output"]], findings_parts=[made["findings"]], excluded_parts=[made["excluded"]], **index)
    return final | {"index": index["index"], "masks": made["output"]}


def test_positives_of_the_chain(chain):
    positives = [row for row in read_lines(chain["train"]) if row["seg"]]
    assert [(row["study_id"], row["instruction"], row["answer"]) for row in positives] == [
        ("50000001", "Segment the effusion in the right lung base.", "[SEG]"),
        ("50000001", "Segment the effusion.", "[SEG] It is located in the right lung base."),
        ("50000002", "Segment the opacity in the right lung base.", "[SEG]"),
        (
            "50000002",
            "Segment the opacity in the right lung base and predict its type.",
            "[SEG] It possibly reflects atelectasis.",
        ),
    ]


def test_every_mask_id_of_a_line_is_in_the_index(chain):
    place = {row[0]: row[2] for row in read_table(chain["index"]).select("mask_id", "shard", "row").iter_rows()}
    with Shard(chain["masks"], key="mask_id") as shard:
        for row in read_lines(chain["train"]):
            if row["seg"]:
                assert shard.row_of[row["mask_id"]] == place[row["mask_id"]]
                mask = shard.get("mask", row["mask_id"])
                assert mask[340:410, 75:195].all()
                assert not mask[:, 300:].any()


def test_negatives_of_the_chain(chain):
    rows = [row for row in read_lines(chain["train"]) if not row["seg"]]
    for study_id, lesion in (("50000001", "effusion"), ("50000002", "atelectasis"), ("50000002", "opacity")):
        for row in rows:
            if (row["study_id"], row["target"]) == (study_id, lesion):
                assert row["type"] != "global"
                assert not set(row["location"]) & {"right lung", "right lung base"}
    assert {row["target"] for row in rows if row["study_id"] == "50000003"} >= {"effusion", "edema", "pneumonia"}


def test_the_chain_ends_in_the_released_layout(chain, tmp_path):
    inputs = {name: chain[name] for name in ("train", "validate", "test")}
    mimic_ils.write_layout(**inputs, masks=[chain["masks"]], layout=str(tmp_path / "release"))
    release = json.loads((tmp_path / "release" / mimic_ils.JSON_NAME).read_text(encoding="utf-8"))
    assert sorted(release["train"]) == ["s50000001", "s50000002", "s50000003"]
    files = sorted(path.relative_to(tmp_path / "release").as_posix() for path in tmp_path.rglob("*.png"))
    assert files == [
        "lesion_mask/s50000001/s50000001_effusion_0.png",
        "lesion_mask/s50000002/s50000002_atelectasis_0.png",
    ]

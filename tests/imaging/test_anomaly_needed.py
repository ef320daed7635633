"""Which images are edited: what a report's tuples ask for, and what becomes of the images that stay as they are."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.edited_images import is_unedited, read_edited_image
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table, write_lines, write_table
from cxr.base.vocabulary import LESIONS
from cxr.ils.masks.findings import CARDIOMEGALY, read_positive_findings
from cxr.ils.masks.settings import Rules
from cxr.imaging.anomaly import map_anomalies
from cxr.imaging.anomaly.map_anomalies import needs_anomaly_map
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.workflow.plan import Plan
from masks_shard import RULES, said
from simple_chests import simple_chest, write_inputs


@pytest.mark.parametrize(
    ("tuples", "expected"),
    [
        ([], False),
        ([said("edema", lesion="edema")], True),
        ([said("edema", lesion="edema", certainty="tentative")], True),
        ([said("edema", lesion="edema", presence="negative")], False),
        ([said("cardiomegaly", lesion="cardiomegaly")], False),
        ([said("nodule", lesion=None)], False),
        ([said("density", lesion=None, predicted_lesion_type="pneumonia")], True),
        ([said("density", lesion=None, predicted_lesion_type=["scar", "edema"])], True),
        ([said("density", lesion=None, candidates=["scar", "atelectasis"])], True),
        ([said("density", lesion=None, predicted_lesion_type="nipple shadow")], False),
        ([said("cardiomegaly", lesion="cardiomegaly"), said("effusion", lesion="effusion")], True),
    ],
)
def test_what_a_report_asks_for(tuples, expected):
    assert needs_anomaly_map(tuples) is expected


names = st.sampled_from([None, *LESIONS, "scar", "nipple shadow", " Edema "])
spoken = st.builds(
    said,
    lesion=st.sampled_from([None, *LESIONS]),
    presence=st.sampled_from(["positive", "negative"]),
    certainty=st.sampled_from(["definitive", "tentative"]),
    predicted_lesion_type=st.one_of(names, st.lists(st.sampled_from([*LESIONS, "scar"]), max_size=2)),
    candidates=st.lists(st.sampled_from([*LESIONS, "scar"]), max_size=2),
    related=st.sampled_from([None, *LESIONS]),
)


@given(st.lists(spoken, max_size=3), st.sampled_from(["strict", "loose"]), st.sampled_from(["tentative", "block_only"]))
@settings(max_examples=400, deadline=None)
def test_no_finding_with_a_mask_of_the_map_is_passed_over(tuples, predicted_other, weak_hedges):
    rules = Rules(**RULES | {"predicted_other": predicted_other, "weak_hedges": weak_hedges})
    masked = [one for one in read_positive_findings(tuples, rules) if one.target not in (None, CARDIOMEGALY)]
    assert needs_anomaly_map(tuples) or not masked


class Black:
    """Paints everything black, and counts its images; with a ``batch``, several at a time."""

    def __init__(self, batch: int | None = None):
        self.seen: list[str] = []
        if batch:
            self.batch, self.edit_batch = batch, self._many

    def edit(self, image, organs):
        self.seen.append("one")
        return np.zeros_like(image)

    def _many(self, images, organs, names):
        self.seen += names
        return [np.zeros_like(image) for image in images]


def shard(tmp_path: Path, asking: tuple[str, ...], silent: tuple[str, ...]) -> dict[str, Path]:
    """Write chests a to d with organs; reports of an effusion (``asking``), of nothing (``silent``), or no report."""
    inputs = write_inputs(tmp_path, {name: simple_chest(number) for number, name in enumerate("abcd")})
    inputs |= {"cohort": tmp_path / "00.parquet", "reports": tmp_path / "00.jsonl"}
    write_table(inputs["cohort"], pl.DataFrame({"image_id": list("abcd"), "study_id": [f"s{name}" for name in "abcd"]}))
    tuples = {name: [said("effusion", lesion="effusion")] for name in asking} | {name: [] for name in silent}
    write_lines(inputs["reports"], [{"study_id": f"s{name}", "tuples": tuples[name]} for name in sorted(tuples)])
    return inputs


def made(folder: Path, inputs: dict, options: AnomalySettings) -> Path:
    folder.mkdir()
    files = {"output": folder / "00.h5", "excluded": folder / "00.excluded.parquet"}
    map_anomalies.run_shard(**inputs, **files, options=options, attrs={}, threads=1)
    assert read_table(files["excluded"]).is_empty()
    return files["output"]


@pytest.mark.parametrize("batch", [None, 3])
def test_images_whose_report_asks_for_no_mask_stay_as_they_are(tmp_path, monkeypatch, batch):
    engine = Black(batch)
    monkeypatch.setattr(map_anomalies, "load_engine", lambda *_: engine)
    inputs = shard(tmp_path, asking=("b",), silent=("a", "c"))
    found = made(tmp_path / "out", inputs, AnomalySettings(engine="black", images="with_findings"))
    assert engine.seen == (["b"] if batch else ["one"])
    with Shard(found) as edits, Shard(inputs["frames"]) as frames:
        assert edits.ids == list("abcd")
        assert {name: is_unedited(edits, name) for name in "abcd"} == {"a": True, "b": False, "c": True, "d": True}
        for name in "acd":
            assert (read_edited_image(edits, frames, name) == frames.get("image", name)).all()
            assert not edits.get("anomaly", name).any()
        assert edits.get("anomaly", "b").any()


def test_by_default_every_image_is_edited(tmp_path, monkeypatch):
    engine = Black()
    monkeypatch.setattr(map_anomalies, "load_engine", lambda *_: engine)
    inputs = shard(tmp_path, asking=("b",), silent=("a", "c"))
    del inputs["cohort"], inputs["reports"]
    with Shard(made(tmp_path / "out", inputs, AnomalySettings(engine="black"))) as edits:
        assert edits.ids == list("abcd")
        assert not any(is_unedited(edits, name) for name in edits.ids)
    assert len(engine.seen) == 4


def test_the_images_of_an_older_shard_are_all_edited(tmp_path):
    with ShardWriter(tmp_path / "old.h5") as writer:
        writer.append("a", edited=np.zeros((512, 512), np.uint8), anomaly=np.zeros((512, 512), np.uint8))
    with Shard(tmp_path / "old.h5") as edits:
        assert is_unedited(edits, "a") is False


def test_the_stage_reads_reports_only_where_they_decide():
    assert Plan({}, []).engine_files["anomaly"] == {}
    assert Plan({"anomaly": {"images": "with_findings"}}, []).engine_files["anomaly"] == {
        "cohort": "results/cohort/{shard}.parquet",
        "reports": "results/reports/{shard}.jsonl",
    }

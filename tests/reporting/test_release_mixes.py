"""The package of an instruction mix: what is in it, what is withheld, and that both are told."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from unittest import mock

import cv2
import numpy as np
import polars as pl
import pytest
import yaml

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.base.vocabulary import SPLITS
from cxr.radvlm.samples import TEXT_TASKS
from cxr.radvlm.settings import FactSource
from cxr.reporting.release import mixes, parquet
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.texts import TERMS
from cxr.workflow.plan_radvlm import RadvlmPlan
from cxr.workflow.settings import read
from radvlm_mix import instructions, sources

ALL = ["pixels", "report_text", "ids"]


@pytest.fixture(scope="module")
def mix(workflow_run, tmp_path_factory) -> Path:
    """A mix of the slice, and in its training lines a conversation."""
    made = sources(workflow_run / "results", tmp_path_factory.mktemp("sources"))
    folder = instructions(workflow_run / "results", made, tmp_path_factory.mktemp("mix"))
    line = next(read_lines(folder / "train.jsonl"))
    turns = [{"question": f"What of number {at}?", "answer": "A word.", "wording": ""} for at in range(5)]
    more = {"sample_id": "r0", "task": "conversation", "turns": turns, "boxes": {}, "facts": [], "mask_ids": []}
    with open(folder / "train.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line | more) + "\n")
    return folder


@pytest.fixture(scope="module")
def package(mix, workflow_run, tmp_path_factory):
    """Return a function that makes a package, once for each list of what is withheld."""
    base, made = tmp_path_factory.mktemp("packages"), {}
    (base / "salt").write_text("a key of more than sixteen bytes")

    def make(withhold: list[str]) -> Path:
        folder = base / "-".join([*withhold, "p"])
        if folder not in made:
            frames = workflow_run / "results/frames"
            options = PackageSettings(withhold=withhold)
            with mock.patch.multiple(parquet, PAIRS_PER_FILE=100, IMAGES_PER_FILE=4):
                mixes.run(
                lines=[str(mix / f"{split}.jsonl") for split in SPLITS], frames=sorted(map(str, frames.glob("??.h5"))),
                salt=str(base / "salt") if "ids" in withhold else [], package=str(folder), options=options,
                mix="all", terms={"own": "embedded"}, folders={"own": str(frames)},
            )  # fmt: skip
            made[folder] = True
        return folder

    return make


def rows(folder: Path, split: str, config: str = "data") -> list[dict]:
    name = {"validate": "validation"}.get(split, split)
    return [row for path in sorted((folder / config).glob(f"{name}-*")) for row in pl.read_parquet(path).to_dicts()]


def test_the_lines_are_those_of_the_mix(mix, package):
    folder = package([])
    for split in SPLITS:
        lines = list(read_lines(mix / f"{split}.jsonl"))
        for line, row in zip(lines, rows(folder, split), strict=True):
            same = ("sample_id", "task", "source", "subject_id", "study_id", "image_id", "pass", "asked", "mask_ids")
            assert {name: row[name] for name in same} == {name: line[name] for name in same}
            turns = [{"question": q, "answer": a} for q, a in zip(row["questions"], row["answers"], strict=True)]
            assert turns == [{name: turn[name] for name in ("question", "answer")} for turn in line["turns"]]
            boxes: dict[str, list] = {}
            for name, box in zip(row["box_names"], row["boxes"], strict=True):
                boxes.setdefault(name, []).append(box)
            assert boxes == line["boxes"]
            assert (row["labels"], row["facts"]) == (line["labels"], line["facts"])


def test_pictures_are_there_unless_they_are_withheld(mix, package):
    folder = package([])
    for split in SPLITS:
        wanted = {line["image_id"] for line in read_lines(mix / f"{split}.jsonl")}
        found = rows(folder, split, "images")
        assert {row["image_id"] for row in found} == wanted
        for row in found:
            picture = cv2.imdecode(np.frombuffer(row["image"]["bytes"], np.uint8), cv2.IMREAD_UNCHANGED)
            assert picture.ndim == 2
            assert max(picture.shape) == 512
    assert not (package(["pixels"]) / "images").exists()


def test_tasks_that_quote_reports_leave_with_report_text_and_are_counted(mix, package):
    folder = package(["pixels", "report_text"])
    lines = [line for split in SPLITS for line in read_lines(mix / f"{split}.jsonl")]
    kept = Counter(line["task"] for line in lines if line["task"] not in TEXT_TASKS)
    assert Counter(row["task"] for split in SPLITS for row in rows(folder, split)) == kept
    assert {line["task"] for line in lines} & set(TEXT_TASKS) == {
        "report_generation",
        "phrase_grounding",
        "conversation",
    }
    sheet = (folder / "DATASHEET.md").read_text()
    assert f"{len(lines) - kept.total()} of {len(lines)} lines are omitted" in sheet
    for (task, split), number in Counter((line["task"], line["split"]) for line in lines).items():
        gone = number if task in TEXT_TASKS else 0
        assert f"| {task} | own | {split} | {number} | {number - gone} | {gone} |" in sheet
    assert f"* `own`: {TERMS['embedded']}" in sheet
    texts = [turn["answer"] for line in lines if line["task"] == "report_generation" for turn in line["turns"]]
    whole = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    said = {text for row in rows(folder, "train") for text in (*row["questions"], *row["answers"])}
    assert not said & set(texts)
    assert not any(text.encode() in whole for text in texts if len(text) > 40)


def test_no_identifier_is_left_where_they_are_withheld(mix, package):
    folder = package(ALL)
    lines = [line for split in SPLITS for line in read_lines(mix / f"{split}.jsonl") if line["task"] not in TEXT_TASKS]
    names = {"sample_id", "subject_id", "study_id", "image_id"}
    gone = {line[name] for line in lines for name in names}
    gone |= {one for line in lines for name in ("facts", "mask_ids") for one in line[name]} - {""}
    found = [row for split in SPLITS for row in rows(folder, split)]
    cells = {row[name] for row in found for name in names} | {one for row in found for one in row["facts"]}
    cells |= {one for row in found for one in row["mask_ids"]}
    assert len(found) == len(lines)
    assert not gone & cells
    for name in names:
        assert len({row[name] for row in found}) == len({line[name] for line in lines})
    for split in SPLITS:
        order = [row["sample_id"] for row in rows(folder, split)]
        assert order == sorted(order)


def test_checksums_cover_all_files_and_the_card_names_the_parts(package):
    folder = package([])
    listed = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert listed.keys() == files.keys() - {"SHA256SUMS"}
    assert all(hashlib.sha256(files[name].read_bytes()).hexdigest() == digest for name, digest in listed.items())
    for withhold, configs in (([], ["lines", "images"]), (["pixels"], ["lines"])):
        head = yaml.safe_load((package(withhold) / "README.md").read_text().split("---")[1])
        assert [one["config_name"] for one in head["configs"]] == configs
        for config in head["configs"]:
            assert [one["split"] for one in config["data_files"]] == ["train", "validation", "test"]
            assert all(list(package(withhold).glob(one["path"])) for one in config["data_files"])


def test_every_format_has_its_terms():
    formats = set(FactSource.declared()["format"][0].__args__)
    assert formats | {"embedded", "manifest", "mimic", "openi"} == set(TERMS)


def test_a_mix_that_is_not_there_is_one_sentence():
    chosen = read({"release": {"mixes": ["other"]}})
    with pytest.raises(UserError, match=r"release.mixes names 'other', but radvlm.instructions has the mixes all"):
        RadvlmPlan(chosen, ["00"])

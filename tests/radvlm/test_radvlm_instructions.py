"""The stage radvlm_instructions on the embedded cohort: every task in every split, and nothing lost."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cxr.base.columns import schema
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.base.vocabulary import SPLITS
from cxr.ils.dataset import mimic_ils
from cxr.radvlm.evaluation import compare
from cxr.radvlm.evaluation.columns import TABLES, read_scores
from cxr.radvlm.evaluation.conversations import run_check
from cxr.radvlm.instructions import draws, join_parts, source_block
from cxr.radvlm.instructions.wordings import load_spoken_names
from cxr.radvlm.samples import TASKS
from cxr.radvlm.sources.read_sources import CONFLICTS
from cxr.vlm.answers.engine import AnswersOptions
from cxr.vlm.conventions import CONVENTIONS, InputSize
from cxr.vlm.samples import read_samples
from cxr.vlm.settings import Vlm
from cxr.vlm.tuning.tune import TuningOptions
from cxr.workflow.plan_radvlm import RadvlmPlan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings, parse_section
from radvlm_mix import FILES, instructions, sources
from radvlm_read_back import read_back
from radvlm_scored import JUDGED, scored
from vlm_runs import ask, tune

TALKS = {"conversation", "conversation_grounded"}
"""Tasks whose lines another stage makes."""


@pytest.fixture(scope="module")
def made(workflow_run, tmp_path_factory):
    return sources(workflow_run / "results", tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def mix(workflow_run, made, tmp_path_factory):
    return instructions(workflow_run / "results", made, tmp_path_factory.mktemp("mix"))


def lines_of(folder, name: str) -> list[dict]:
    return list(read_lines(folder / f"{name}.jsonl"))


def everything(folder) -> list[dict]:
    return [line for split in SPLITS for line in lines_of(folder, split)]


def test_every_task_has_lines(mix):
    counts = {split: Counter(line["task"] for line in lines_of(mix, split)) for split in SPLITS}
    assert {task for split in SPLITS for task in counts[split]} == set(TASKS) - TALKS
    assert all(line["split"] == split for split in SPLITS for line in lines_of(mix, split))


def test_table_1_adds_up_to_the_files(mix):
    table = read_table(mix / "table1.tsv")
    rows, total = table.filter(table["task"] != "total"), table.filter(task="total").row(0, named=True)
    for column, split in (("lines", "train"), ("validate", "validate"), ("evaluation", "test")):
        assert rows[column].sum() == total[column] == len(lines_of(mix, split))
    by_task = Counter(line["task"] for line in lines_of(mix, "train"))
    assert all(by_task[task] == lines for task, lines in rows.select("task", "lines").iter_rows())
    each = {task: row for task, *row in rows.select("task", "pairs", "passes", "lines").iter_rows()}
    assert all(pairs * passes == lines for pairs, passes, lines in each.values())


def test_ids_are_unique_and_the_room_of_models_reads_the_lines(mix):
    ids = [line["sample_id"] for line in everything(mix)]
    assert len(set(ids)) == len(ids)
    assert [sample.sample_id for split in SPLITS for sample in read_samples(mix / f"{split}.jsonl")] == ids


def test_no_subject_is_in_two_splits(mix):
    of: dict[str, set[str]] = {}
    for line in everything(mix):
        of.setdefault(line["subject_id"], set()).add(line["split"])
    assert all(len(splits) == 1 for splits in of.values())


def test_what_became_of_every_fact_is_told(mix, made):
    table = read_table(mix / "conservation.tsv")
    numbers = {(what, outcome): number for _, what, outcome, number in table.iter_rows()}
    kinds = Counter(read_table(made / "facts.parquet")["kind"])
    for what, number in (*kinds.items(), ("lines", len(everything(mix))), ("exchanged", len(lines_of(mix, "test")))):
        parts = [count for (of, outcome), count in numbers.items() if of == what and outcome != "all"]
        assert sum(parts) == numbers[what, "all"] == number, what
    used = {fact for line in everything(mix) for fact in line["facts"]}
    facts = set(read_table(made / "facts.parquet")["fact_id"])
    assert len(used & facts) == sum(numbers[kind, "used"] for kind in kinds)


def test_boxes_are_slots_with_rising_corners_once_written(mix):
    for line in everything(mix):
        said = " ".join(turn["answer"] for turn in line["turns"])
        assert all(f"<box:{name}>" in said for name in line["boxes"])
        for boxes in line["boxes"].values():
            written = np.array([[float(f"{value:.2f}") for value in box] for box in boxes])
            assert (written[:, 2:] > written[:, :2]).all()
            areas = [(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in boxes]
            assert areas == sorted(areas, reverse=True)


def test_passes_ask_in_other_words_and_regions_are_others(mix):
    asked: dict[tuple, list] = {}
    for line in lines_of(mix, "train"):
        if line["task"] in ("abnormality_grounding", "phrase_grounding", "anatomical_grounding"):
            key = (
                line["task"],
                line["image_id"],
                tuple(line["boxes"]) if line["task"] != "anatomical_grounding" else "",
            )
            asked.setdefault((*key, *(line["facts"] if key[2] else ())), []).append(line)
    for (task, *_), lines in asked.items():
        questions = [line["turns"][0]["wording"].split("/")[0] for line in lines]
        assert len(set(questions)) == len(questions) == {"anatomical_grounding": 4}.get(task, 3)
        if task == "anatomical_grounding":
            assert len({line["asked"] for line in lines}) == 4


def test_names_tell_nothing_of_what_is_absent(mix):
    """Of each finding there are at most as many absent lines as present ones, unless others have too few."""
    lines = lines_of(mix, "train")
    present = Counter(line["asked"] for line in lines if line["task"] == "abnormality_grounding")
    absent = Counter(line["asked"] for line in lines if line["task"] == "absent_grounding")
    assert set(absent) <= set(present)
    assert sum(absent.values()) <= sum(present.values())
    for line in lines:
        if line["task"] == "absent_grounding":
            assert line["asked"] not in line["labels"]
            assert line["boxes"] == {}


def test_every_question_of_test_is_asked_with_another_patients_picture(mix):
    right = {line["sample_id"]: line for line in lines_of(mix, "test")}
    whose = {line["image_id"]: line["subject_id"] for line in right.values()}
    found = lines_of(mix, "exchanged")
    lost = read_table(mix / "conservation.tsv").filter(what="exchanged", outcome="no_other")["number"].sum()
    assert len(found) + lost == len(right)
    for line in found:
        first = right[line["sample_id"]]
        assert line["right_image_id"] == first["image_id"]
        assert whose[line["image_id"]] != first["subject_id"]
        changed = {name for name in first if line[name] != first[name]}
        assert changed == {"image_id"}


def test_a_list_of_all_findings_is_whole(mix):
    """An image with a finding that has no box is not asked for all of them."""
    for line in everything(mix):
        if line["task"] == "abnormality_detection":
            assert set(line["labels"]) - {"Support Devices"} <= line["boxes"].keys()
        if line["task"] == "classification":
            wording = line["turns"][0]["wording"].split("/")[1]
            assert wording.startswith("n") == (line["labels"] == [])


def test_ils_has_as_many_negatives_as_positives_with_one_mask_a_mark(mix):
    for split in SPLITS:
        own = [line for line in lines_of(mix, split) if line["task"] == "ils_segmentation"]
        positive = [line for line in own if all(line["mask_ids"])]
        assert 2 * len(positive) == len(own) > 0
        assert all(line["turns"][0]["answer"].count("[SEG]") == len(line["mask_ids"]) == 1 for line in own)
        boxed = [line for line in lines_of(mix, split) if line["task"] == "ils_grounding"]
        assert {line["facts"][0] for line in boxed} == {line["facts"][0] for line in own}
        assert all("[SEG]" not in line["turns"][0]["answer"] for line in boxed)


def test_every_answer_is_read_back(mix):
    """Labels and boxes of every worded line, from its text alone."""
    unit, seen, read = CONVENTIONS["unit"], InputSize(512, 512), Counter()
    samples = {one.sample_id: one for split in SPLITS for one in read_samples(mix / f"{split}.jsonl")}
    for line in everything(mix):
        task = line["task"]
        if task == "ils_segmentation":
            continue
        found = read_back(task, samples[line["sample_id"]].answer(0, unit, seen), unit, seen)
        assert found is not None, line["turns"][0]
        read[task] += 1
        if task == "classification":
            assert sorted(found.names) == sorted(load_spoken_names().say(name) for name in line["labels"])
        elif task != "report_generation":
            told = list(line["boxes"].values())
            assert [len(boxes) for boxes in found.boxes.values()] == [len(boxes) for boxes in told]
            for boxes, right in zip(found.boxes.values(), told, strict=True):
                np.testing.assert_allclose(boxes, right, atol=0.005 + 1e-12)
            if task in ("anatomical_grounding", "abnormality_grounding", "absent_grounding"):
                assert [name.lower() for name in found.names or [load_spoken_names().say(line["asked"])]] == [
                    load_spoken_names().say(line["asked"])
                ]
    assert len(read) == len(set(TASKS) - TALKS) - 1


def test_a_mix_takes_the_pairs_and_masks_of_its_threshold_set_or_of_the_release(tmp_path):
    """Conversations name masks of the first set, whichever set the pairs are of."""
    mixes = {"all": {"thresholds": "mimic_ils"}, "half": {"thresholds": "half"}, "first": {}}
    told = {"radvlm": {"instructions": {"mixes": mixes}}}
    imported = {"dataset": {"mimic_ils": str(tmp_path), "mimic_ils_images": str(tmp_path)}}
    plan = RadvlmPlan(parse_section(Settings, told | imported), ["00", "01"])
    first, half = ([f"results/masks/{name}/{shard}.h5" for shard in ("00", "01")] for name in ("default", "half"))
    release = ["results/masks/mimic_ils/mimic_ils.h5"]
    assert [plan.ils_files(mix, "own")["masks"] for mix in mixes] == [release, half, first]
    assert [plan.segmentation_masks(mix) for mix in mixes] == [first + release, first + half, first]
    assert plan.ils_files("all", "own")["pairs"] == [
        f"results/dataset/mimic_ils/{split}.jsonl" for split in ("train", "validate", "test")
    ]
    with pytest.raises(ValueError, match=r"radvlm.instructions.mixes.all names 'mimic_ils', but the threshold sets"):
        parse_section(Settings, told)


def released(results: Path, folder: Path) -> dict[str, list[str]]:
    """Write a run's dataset in the layout of the authors' release, read it back; return its {pairs, masks}."""
    splits = ("train", "validate", "test")
    given = {split: str(results / f"dataset/default/{split}.jsonl") for split in splits}
    shards = sorted(map(str, (results / "masks/default").glob("??.h5")))
    mimic_ils.write_layout(**given, masks=shards, layout=str(folder / "release"))
    back = {split: str(folder / f"{split}.jsonl") for split in splits}
    masks = str(folder / "mimic_ils.h5")
    mimic_ils.import_layout(folder=str(folder / "release"), **back, masks=masks, index=str(folder / "index.parquet"))
    return {"pairs": list(back.values()), "masks": [masks]}


def test_pairs_of_the_authors_release_give_the_lines_of_the_same_dataset(mix, made, workflow_run, tmp_path):
    """The run's own dataset as a release: the same questions, boxes and masks. A pair of another image is counted."""
    given = released(workflow_run / "results", tmp_path)
    train = Path(given["pairs"][0])
    lines = list(read_lines(train))
    write_lines(train, [*lines, lines[0] | {"image_id": "elsewhere", "pair_id": "elsewhere_positive_0"}])
    other = instructions(workflow_run / "results", made, tmp_path / "other", pairs=given)
    wanted = ("question", "answer", "wording")
    for split in ("train", "validate", "test"):
        ours, theirs = (
            {
                (line["sample_id"], tuple(turn[name] for turn in line["turns"] for name in wanted),
                 json.dumps(line["boxes"]), tuple(line["mask_ids"]))
                for line in lines_of(folder, split) if line["task"].startswith("ils_")
            }
            for folder in (mix, other)
        )  # fmt: skip
        assert theirs == ours
    ils = [line for split in ("train", "test") for line in lines_of(other, split) if line["mask_ids"]]
    assert len(ils) > 5
    counts = read_table(other / "conservation.tsv").filter(what="pairs")
    told = dict(counts.select("outcome", "number").iter_rows())
    assert told["no_image"] == 1
    assert told["all"] == sum(number for outcome, number in told.items() if outcome != "all")


def test_what_is_left_out_for_its_patients_split_says_so(made, workflow_run, tmp_path):
    """Two images leave: their texts and pairs have that reason, each is counted, and nothing else changes its count."""
    shutil.copytree(made, tmp_path / "made")
    pairs = Counter(
        line["image_id"] for split in SPLITS for line in lines_of(workflow_run / "results/dataset/default", split)
    )
    left = sorted(pairs)[:2]
    rows = [("own", image, "study", "train", "test") for image in left]
    conflicts = pl.DataFrame(rows, schema=schema(CONFLICTS), orient="row")
    write_table(str(tmp_path / "made/conflicts.parquet"), conflicts, CONFLICTS)
    table = read_table(instructions(workflow_run / "results", tmp_path / "made", tmp_path / "mix") / "conservation.tsv")
    told = {(what, outcome): number for _, what, outcome, number in table.iter_rows()}
    assert told["pairs", "split_conflict"] == sum(pairs[image] for image in left) > 2
    texts = [image for line in lines_of(made, "filtered") for image in line["image_ids"]]
    assert told["texts", "split_conflict"] == sum(image in left for image in texts) > 0
    assert ("pairs", "no_image") not in told
    for what, number in (("pairs", pairs.total()), ("texts", len(texts))):
        counted = sum(count for (of, outcome), count in told.items() if of == what and outcome != "all")
        assert counted == told[what, "all"] == number


def test_the_same_bytes_come_again_and_other_settings_change_what_they_should(
    mix, made, workflow_run, tmp_path, monkeypatch
):
    again = instructions(workflow_run / "results", made, tmp_path / "again")
    assert {name: (again / name).read_bytes() == (mix / name).read_bytes() for name in FILES.values()} == dict.fromkeys(
        FILES.values(), True
    )
    with monkeypatch.context() as patch:
        patch.setattr(source_block, "BLOCK_SIZE", 5)
        less = instructions(workflow_run / "results", made, tmp_path / "less")
    assert {name: (less / name).read_bytes() == (mix / name).read_bytes() for name in FILES.values()} == dict.fromkeys(
        FILES.values(), True
    )
    other = {"preset": "own", "tasks": {"classification": {"own": {"repeat": 0, "most": None}},
                                        "anatomical_grounding": {"own": {"repeat": 2, "most": 5}}}}  # fmt: skip
    monkeypatch.setattr(draws, "ABSENCES_PER_SAMPLE", 0.0)
    few = instructions(workflow_run / "results", made, tmp_path / "few", other)
    tasks = Counter(line["task"] for line in lines_of(few, "train"))
    assert tasks["classification"] == tasks["absent_grounding"] == 0
    assert tasks["anatomical_grounding"] == 10
    assert {line["image_id"] for line in lines_of(few, "train") if line["task"] == "anatomical_grounding"} <= {
        line["image_id"] for line in lines_of(mix, "train")
    }
    said = {
        line["asked"]: line["turns"][0] for line in lines_of(few, "train") if line["task"] == "abnormality_grounding"
    }
    assert all(name.lower() in turn["question"].lower() for name, turn in said.items())


def answered(lines: Path, test: Path, frames: list[str], folder: Path) -> Path:
    """Tune the small model by two updates on lines, and ask it the lines ``test``; returns the file of answers."""
    recipe = {"updates": 2, "batch": 2, "micro_batch": 2}
    settings = parse_section(Vlm, {"tuning": {"onevision_tiny": recipe}, "answers": {"max_new_tokens": 12}})
    plan = VlmPlan(settings, "cpu", 0, ["all"])
    given = {"lines": str(lines), "pictures": frames}
    run = tune(folder, given, TuningOptions(**plan.runs["radvlm"]["options"]))
    asking = AnswersOptions(**plan.answer_options["radvlm"])
    return ask(folder / "answers.jsonl", given | {"lines": str(test)}, run, asking)


def test_from_dicom_files_to_table_6(mix, workflow_run, tmp_path):
    """The mix is of the embedded cohort's DICOM files: a model of all tasks and one of regions alone are tuned on it,
    asked and scored, and Table 6 has both.
    """
    frames = sorted(map(str, (workflow_run / "results/frames").glob("??.h5")))
    seen: Counter[str] = Counter()
    test = [line for line in lines_of(mix, "test") if seen.update([line["task"]]) or seen[line["task"]] <= 2]
    regions = [line for line in lines_of(mix, "train") if line["task"] == "anatomical_grounding"]
    write_lines(tmp_path / "test.jsonl", test)
    write_lines(tmp_path / "regions.jsonl", regions)
    runs = {"all": mix / "train.jsonl", "regions": tmp_path / "regions.jsonl"}
    for name, lines in runs.items():
        said = list(read_lines(answered(lines, tmp_path / "test.jsonl", frames, tmp_path / name / "run")))
        assert [line["sample_id"] for line in said] == [line["sample_id"] for line in test]
        scored(tmp_path / name, test, said, replicates=0)
    run_check(lines=str(tmp_path / "test.jsonl"), checked=str(tmp_path / "c.tsv"), **JUDGED, execution={})
    compare.run_comparison(
        scored=[str(tmp_path / name / "scores.tsv") for name in runs], judge_check=str(tmp_path / "c.tsv"),
        comparison=str(tmp_path / "comparison.tsv"), runs=list(runs), adapters={},
    )  # fmt: skip
    ours = read_scores(tmp_path / "comparison.tsv", TABLES).filter(table="table6", by="ours")
    assert set(ours["model"]) == runs.keys()
    wanted = {"rouge_l", "findings_f1", "f1_macro", "anatomical", "abnormality", "phrase"}
    for name in runs:
        cells = ours.filter((pl.col("model") == name) & pl.col("column").is_in(wanted))
        assert set(cells["column"]) == wanted
        assert cells["value"].null_count() == 0


# ---- Table 1's lines are the lines of the files ---------------------------------------------------------------------


def test_table_1_and_the_files_are_counted_apart(mix):
    told = {(what, outcome): number for _, what, outcome, number in read_table(mix / "conservation.tsv").iter_rows()}
    files = {split: len((mix / f"{split}.jsonl").read_bytes().splitlines()) for split in SPLITS}
    total = read_table(mix / "table1.tsv").filter(task="total").row(0, named=True)
    assert told["table1", "all"] == total["lines"] + total["validate"] + total["evaluation"] == sum(files.values())
    assert {split: told["table1", split] for split in SPLITS} == files
    assert told["lines", "file"] == sum(files.values())


def test_a_line_that_table_1_does_not_tell_stops_the_job(made, workflow_run, tmp_path, monkeypatch):
    original = join_parts.build_table1

    def less(*of):
        return original(*of).with_columns(lines=pl.col("lines") - (pl.col("task") == "total").cast(pl.Int64))

    monkeypatch.setattr(join_parts, "build_table1", less)
    with pytest.raises(AssertionError, match=r"^radvlm_instructions: table1: \d+ in, \d+ accounted for \(train"):
        instructions(workflow_run / "results", made, tmp_path / "mix")


def test_lines_about_other_pictures_are_those_of_test_or_have_none(mix):
    written, table = {"train": 2, "validate": 1, "test": 4, "exchanged": 3}, read_table(mix / "table1.tsv")
    table = table.filter(task="total").with_columns(lines=2, validate=1, evaluation=4)
    found = join_parts.count_lines(8, 1, table, written, 1)
    assert found[:3] == [("lines", "all", 8), ("lines", "file", 7), ("lines", "split_conflict", 1)]
    assert found[-3:] == [("exchanged", "all", 4), ("exchanged", "file", 3), ("exchanged", "no_other", 1)]
    with pytest.raises(AssertionError, match=r"exchanged: 4 in, 3 accounted for \(file 3, no_other 0\)"):
        join_parts.count_lines(8, 1, table, written, 0)


def test_a_line_of_a_source_that_no_file_has_stops_the_job(made, workflow_run, tmp_path, monkeypatch):
    original = join_parts.read_indices
    monkeypatch.setattr(join_parts, "read_indices", lambda paths: original(paths)[1:])
    with pytest.raises(AssertionError, match=r"^radvlm_instructions: lines: \d+ in, \d+ accounted for \(file"):
        instructions(workflow_run / "results", made, tmp_path / "mix")

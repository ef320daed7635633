"""Mixes, wordings and tasks on small sources written by hand, with exact values."""

from collections import Counter
from dataclasses import asdict

import polars as pl
import pytest

from cxr.base.seeds import stable_hash
from cxr.base.tables import write_lines, write_table
from cxr.radvlm.instructions import source_block, tasks
from cxr.radvlm.instructions.draws import draw_samples, select_absences
from cxr.radvlm.instructions.join_parts import build_table1, drop_conflicts, pair_images
from cxr.radvlm.instructions.mix import CODE, OWN, PAPER, PAPER_PLUS_ILS, mix_rows, rows_from_options
from cxr.radvlm.instructions.source_block import Blocks, SourceBlock, summarize_source
from cxr.radvlm.instructions.tasks import TaskOptions
from cxr.radvlm.instructions.wordings import (
    KINDS,
    SLOT,
    fill_slots,
    load_spoken_names,
    load_wordings,
    word_turn,
)
from cxr.radvlm.instructions.write_part import INDEX, SampleWriter
from cxr.radvlm.samples import TASKS, join_in_words
from cxr.radvlm.sources.facts import FACT_COLUMNS, FACTS_SCHEMA, IMAGES_SCHEMA
from cxr.vlm.conventions import CONVENTIONS, InputSize
from radvlm_read_back import read_back

FORMATS = {
    "mimic": "mimic", "plus": "chexpert_plus", "chex": "chexpert", "genome": "imagenome", "vindr": "vindr",
    "ms": "ms_cxr", "padchest": "padchest_gr",
}  # fmt: skip
"""A source of each published format."""
HOW = TaskOptions(1)
SHAPE = (100, 200)
"""Rows and columns of a picture."""


def rows_of(preset: str, tasks_=None, formats=FORMATS):
    return mix_rows({"preset": preset, "tasks": tasks_ or {}}, formats)


# ---- mixes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "lines"), [(PAPER, 1102431), (CODE, 1115021)])
def test_the_published_rows_add_up_to_what_they_give(preset, lines):
    table = build_table1(rows_of(preset), pl.DataFrame(schema={name: column.kind for name, column in INDEX.items()}))
    total = table.filter(task="total").row(0, named=True)
    assert total[preset] == lines
    assert total["lines"] == 0
    assert total["difference"] == -1102431


def test_a_source_that_is_not_there_leaves_its_row_empty_and_says_so():
    rows = rows_of(PAPER, formats={"vindr": "vindr"})
    assert len(rows) == 12
    assert {row.source for row in rows if row.used} == {"vindr"}
    table = build_table1(rows, pl.DataFrame(schema={name: column.kind for name, column in INDEX.items()}))
    notes = dict(table.select("source", "note").unique().iter_rows())
    assert notes == {"": "", "vindr": ""} | dict.fromkeys(set(FORMATS.values()) - {"vindr"}, "not configured")


def test_presets_limits_and_training_splits():
    paper = {(row.task, row.source): row for row in rows_of(PAPER)}
    assert (paper["anatomical_grounding", "genome"].most, paper["anatomical_grounding", "genome"].tested) == (
        80000,
        2000,
    )
    assert paper["phrase_grounding", "ms"].splits == ("train", "validate")
    assert paper["classification", "chex"].splits == ("train",)
    assert {row.most for row in rows_of(CODE) if row.task == "conversation"} == {86155}
    own = rows_of(OWN, formats={"own": "own"})
    assert [row.task for row in own] == list(TASKS)
    assert sum(row.source == OWN for row in rows_of(PAPER_PLUS_ILS, formats=FORMATS | {"own": "own"})) == 3
    assert rows_from_options(list(map(asdict, rows_of(PAPER)))) == rows_of(PAPER)


def test_tasks_of_a_mix_go_over_its_preset():
    given = {
        "classification": {"own": {"repeat": 0, "most": None}},
        "phrase_grounding": {"own": {"repeat": 5, "most": 7}},
    }
    rows = {row.task: row for row in rows_of(OWN, given, {"own": "own"})}
    assert "classification" not in rows
    assert (rows["phrase_grounding"].repeat, rows["phrase_grounding"].most) == (5, 7)
    more = rows_of(PAPER, {"phrase_grounding": {"own": {"repeat": 2, "most": None}}}, FORMATS | {"own": "own"})
    assert [(row.task, row.repeat) for row in more if row.source == "own"] == [("phrase_grounding", 2)]


# ---- wordings -----------------------------------------------------------------------------------------------------


def test_every_task_has_enough_wordings_and_no_two_are_equal():
    held = load_wordings()
    assert held["absent_grounding"].questions == held["abnormality_grounding"].questions  # which tell no answer
    assert set(held) == set(TASKS) - {"conversation", "conversation_grounded", "ils_segmentation"}
    texts = [text for task, one in held.items() if task != "absent_grounding" for text in one.questions.values()]
    texts += [text for one in held.values() for frames in one.answers.values() for text in frames.values()]
    assert [text for text, count in Counter(text.lower() for text in texts).items() if count > 1] == []
    for task, one in held.items():
        assert len(one.questions) >= 15, task
        assert Counter(key[0] for key in one.questions) == {"c": 5, "s": 5, "t": 5}
        # a report's answer is the text itself, a negative of ILS the data set's own denial
        frames = {(task, kind): len(found) for kind, found in one.answers.items()}
        assert all(count >= 8 or of in {("report_generation", "answers"), ("ils_grounding", "none")}
                   for of, count in frames.items())  # fmt: skip


SLOTS = {
    "report_generation": ({}, {"report"}), "classification": ({}, {"findings", "number"}),
    "anatomical_grounding": ({"region"}, {"region", "boxes"}), "abnormality_detection": ({}, {"items", "number"}),
    "abnormality_grounding": ({"finding", "a finding"}, {"finding", "boxes"}),
    "absent_grounding": ({"finding", "a finding"}, {"finding"}), "phrase_grounding": ({"phrase"}, {"boxes"}),
    "ils_grounding": ({"instruction"}, {"answer", "boxes"}),
}  # fmt: skip


@pytest.mark.parametrize("task", SLOTS)
def test_wordings_have_the_slots_of_their_task(task):
    asked, answered = SLOTS[task]
    held = load_wordings()[task]
    for text in held.questions.values():
        assert set(SLOT.findall(text)) <= set(asked)
        assert not asked or SLOT.findall(text)
    for kind in KINDS:
        for text in held.answers.get(kind, {}).values():
            assert set(SLOT.findall(text)) <= set(answered)
            needed = {"some": answered & {"boxes", "items", "findings"}, "answers": answered}.get(kind, set())
            assert needed <= set(SLOT.findall(text))


def test_a_slot_is_filled_once_and_braces_of_a_phrase_stay():
    assert fill_slots('where is "{phrase}"?', {"phrase": "{boxes}"}) == 'Where is "{boxes}"?'
    with pytest.raises(KeyError):
        fill_slots("{region}", {})


def test_no_question_comes_again_before_all_have_come():
    slots = {"region": "right lung", "a region": "right lung", "boxes": "<box:right lung>"}
    turns = [word_turn("anatomical_grounding", "some", (1, "own", "i"), number, slots) for number in range(30)]
    asked = [one.wording.split("/")[0] for one in turns]
    assert len(set(asked[:15])) == 15
    assert asked[:15] == asked[15:]
    assert len({one.wording.split("/")[1] for one in turns}) > 4
    other = [word_turn("anatomical_grounding", "some", (1, "own", "j"), number, slots) for number in range(15)]
    assert [one.wording for one in other] != [one.wording for one in turns[:15]]
    assert turns[3] == word_turn("anatomical_grounding", "some", (1, "own", "i"), 3, slots)


def test_names_are_said_as_people_say_them():
    told = load_spoken_names()
    assert [told.say(name) for name in ("ILD", "svc", "Nodule/Mass", "Pleural Effusion")] == [
        "interstitial lung disease", "superior vena cava", "nodule or mass", "pleural effusion",
    ]  # fmt: skip
    assert told.with_article("pleural effusion") == "a pleural effusion"
    assert told.with_article("Enlarged cardiomediastinum") == "an Enlarged cardiomediastinum"
    assert told.with_article("edema") == "edema"
    assert len(told.regions) == 29
    assert [join_in_words(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


# ---- tasks --------------------------------------------------------------------------------------------------------


def fact(image_id, kind, name, box=None, value=None, group=None, reader=None):
    row = dict.fromkeys(FACTS_SCHEMA) | {
        "image_id": image_id,
        "kind": kind,
        "name": name,
        "value": value,
        "stated": value,
    }
    row |= {"group": group, "reader": reader}
    row |= dict(zip(("x1", "y1", "x2", "y2"), map(float, box or ()), strict=False))
    return row | {"fact_id": f"f{stable_hash(*row.values()):016x}"}


def given_of(facts, images=("i1", "i2"), split="train", source="people", **more) -> SourceBlock:
    rows = {
        name: {"source": source, "image_id": name, "study_id": f"s{name}", "subject_id": f"p{name}"}
        | {"split": split, "view": "PA"}
        for name in images
    }
    table = pl.DataFrame(facts, schema=FACTS_SCHEMA)
    return SourceBlock(source, rows, table, dict.fromkeys(images, SHAPE), summarize_source(table.lazy()), **more)


def blocks_of(folder, facts, images=("i1", "i2"), split="train", source="people", **lines) -> Blocks:
    """The same from files; ``lines``: lists of lines by what they are."""
    folder.mkdir(exist_ok=True)
    rows = given_of([], images, split, source).images.values()
    table = pl.DataFrame([dict.fromkeys(IMAGES_SCHEMA) | row for row in rows], schema=IMAGES_SCHEMA)
    path = str(folder / "facts.parquet")
    fact_table = pl.DataFrame(facts, schema=FACTS_SCHEMA).sort("image_id", "kind", "name", "fact_id")
    write_table(path, fact_table, FACT_COLUMNS)
    paths = {what: [str(folder / f"{what}.jsonl")] for what in lines}
    for what, held in lines.items():
        write_lines(paths[what][0], held, checked=True)
    return Blocks(source, table, path, dict.fromkeys(images, SHAPE), paths)


def written(blocks: Blocks, rows, seed, pairs=frozenset()) -> tuple[list, SampleWriter, pl.DataFrame]:
    """The lines of all blocks, the writer, and what became of all that was given."""
    with blocks:
        how = TaskOptions(seed, pairs=pairs)
        writer = SampleWriter(seed, rows, draw_samples(blocks, rows, how), pairs)
        made = [one for given in blocks.each() for one in writer.lines(given)]
        return made, writer, writer.outcome_table(blocks)


def test_boxes_of_a_finding_are_one_pair_and_readers_boxes_are_none():
    facts = [
        fact("i1", "box", "Edema", (0, 0, 20, 10), group="g1"),
        fact("i1", "box", "Edema", (100, 0, 180, 50), group="g1"),
        fact("i1", "box", "Edema", (1, 1, 2, 90), group="g1", reader="R1"),
        fact("i2", "box", "Edema", (0, 0, 0.4, 10), group="g2"),  # two thousandths of the width
        fact("i3", "box", "Edema", (0, 0, 50, 50), group="g3"),  # an image that the mix does not have
    ]  # fmt: skip
    left = []
    how = TaskOptions(1, lambda reason, ids: left.append((reason, list(ids))))
    (unit,) = tasks.abnormality_grounding(given_of(facts), how)
    (part,) = unit.parts
    assert (unit.image_id, unit.key, part.target) == ("i1", "g1", "Edema")
    assert part.boxes == {"Edema": ((0.5, 0.0, 0.9, 0.5), (0.0, 0.0, 0.1, 0.1))}
    assert part.slots == {"finding": "edema", "a finding": "edema", "boxes": "<box:Edema>"}
    assert left == [("no_area", [facts[3]["fact_id"]])]


def test_only_the_regions_of_the_paper_are_asked_for():
    facts = [fact("i1", "region", name, (0, 0, 50, 50)) for name in ("carina", "svc", "left upper abdomen")]
    (few,) = tasks.anatomical_grounding(given_of(facts), HOW)
    assert {part.target for part in few.parts} == {"carina", "svc"}
    assert [number for number, _ in few.passes(4, True)] == [0, 1]


def test_labels_are_told_in_their_order_and_devices_with_them():
    stated = {"Support Devices": "present", "Edema": "present", "Pneumonia": "absent", "No Finding": "absent"}
    facts = [fact("i1", "label", name, value=value) for name, value in stated.items()]
    facts += [fact("i2", "label", "No Finding", value="present"), fact("i2", "label", "Fracture", value="absent")]
    first, second = tasks.classification(given_of(facts), HOW)
    assert (first.parts[0].kind, first.parts[0].slots) == (
        "some",
        {"findings": "edema and support devices", "number": "2"},
    )
    assert len(first.parts[0].facts) == 4
    assert (second.parts[0].kind, second.parts[0].slots["number"]) == ("none", "0")


def test_an_image_is_asked_for_all_findings_only_if_all_have_boxes():
    seen = [fact(name, "label", "No Finding", value="absent") for name in ("a", "b", "c", "d")]
    facts = [
        *seen, fact("a", "label", "Edema", value="present"), fact("a", "box", "Edema", (0, 0, 50, 50), group="g"),
        fact("b", "label", "Edema", value="present"), fact("c", "label", "Support Devices", value="present"),
    ]  # fmt: skip
    units = {unit.image_id: unit.parts[0] for unit in tasks.abnormality_detection(given_of(facts, "abcde"), HOW)}
    assert {name: part.kind for name, part in units.items()} == {"a": "some", "c": "none", "d": "none"}
    assert units["a"].slots == {"items": "edema <box:Edema>", "number": "1"}
    nobody = {unit.image_id for unit in tasks.abnormality_detection(given_of([], "ab"), HOW)}
    assert nobody == {"a", "b"}  # a source of boxes alone: what nobody drew is not there


def test_a_phrase_is_data_and_one_with_coordinates_is_not_asked():
    said = {"g1": 'Opacity "mild"\n at {base} <x>.', "g2": "At [0.1, 0.2, 0.3, 0.4].", "g3": "Outline [SEG]."}
    facts = [fact("i1", "phrase", f"as it was {group}", (0, 0, 50, 50), group=group) for group in (*said, "g4")]
    phrases = [{"image_id": "i1", "group": group, "text": text} for group, text in said.items()]
    left = []
    how = TaskOptions(1, lambda reason, ids: left.append(reason))
    (unit,) = tasks.phrase_grounding(given_of(facts, phrases=phrases), how)
    assert unit.parts[0].slots["phrase"] == "Opacity 'mild' at (base) (x)"
    assert unit.parts[0].boxes == {"phrase": ((0.0, 0.0, 0.25, 0.5),)}
    assert sorted(left) == ["bad_form", "bad_form", "nothing_left"]


def test_what_nobody_drew_is_absent_and_what_a_report_denies():
    facts = [
        fact("i1", "box", "Edema", (0, 0, 50, 50), group="a"),
        fact("i2", "box", "Nodule/Mass", (0, 0, 9, 9), reader="R1"),
    ]
    assert [one[:2] for one in tasks.find_absences(given_of(facts))] == [("i1", "Nodule/Mass"), ("i2", "Edema")]
    told = [*facts, fact("i2", "label", "Edema", value="absent"), fact("i1", "label", "Pneumonia", value="absent")]
    pairs = [
        {"image_id": "i2", "pair_id": "n1", "seg": False, "type": "global", "target": "pneumonia"},
        {"image_id": "i2", "pair_id": "n2", "seg": False, "type": "basic", "target": "edema"},
    ]
    found = list(tasks.find_absences(given_of(told, pairs=pairs)))
    assert found == [("i2", "Edema", (told[2]["fact_id"],))]  # nothing has boxes of pneumonia


def test_as_many_are_absent_as_present_of_each_finding():
    names = ("Edema", "Mass", "Rare")
    rows = [("train", name, f"i{n}", stable_hash(f"i{n}", name)) for n in range(6) for name in names]
    present = {("train", "Edema"): 4, ("train", "Mass"): 8, ("test", "Rare"): 3}
    assert Counter(name for _, name, *_ in select_absences(rows, present, 1.0)) == {
        "Edema": 6,
        "Mass": 6,
    }  # two of edema stand in for mass
    few = select_absences(rows, present, 0.5)
    assert Counter(name for _, name, *_ in few) == {"Edema": 2, "Mass": 4}
    assert {rank for _, name, _, rank in few if name == "Edema"} == set(
        sorted(rank for _, name, _, rank in rows if name == "Edema")[:2]
    )
    assert select_absences(rows, present, 0.0) == []
    many = select_absences(rows, {("train", "Edema"): 2, ("train", "Mass"): 0}, 4.0)
    assert [name for _, name, *_ in many] == ["Edema"] * 6 + ["Mass"] * 2


def test_limits_draw_images_by_a_hash_whatever_their_order(tmp_path):
    facts = [fact(f"i{n:02d}", "region", "carina", (0, 0, 50, 50)) for n in range(20)]
    images = [f"i{n:02d}" for n in range(20)]
    row = rows_from_options([{"task": "anatomical_grounding", "source": "people", "repeat": 1, "most": 5}])
    first, _, left = written(blocks_of(tmp_path / "a", facts, images), row, SEED)
    other, _, _ = written(blocks_of(tmp_path / "b", facts[::-1], images[::-1]), row, SEED)
    made, turned = ([line["image_id"] for line in found] for found in (first, other))
    assert len(made) == 5
    assert left.rows() == [("people", "region", what, number) for what, number in
                           (("all", 20), ("not_drawn", 15), ("used", 5))]  # fmt: skip
    assert made == turned
    first_ids = sorted(images, key=lambda name: stable_hash(3, "anatomical_grounding", "people", name))[:5]
    assert made == sorted(first_ids)


IMAGES = [f"i{n:02d}" for n in range(9)]
SEED = 3


def everything() -> tuple[list, dict]:
    """Facts and lines of nine images: texts of two images each, conversations, pairs, labels, boxes, regions."""
    facts = [fact(image, "region", name, (0, 0, 50, 50)) for image in IMAGES for name in ("carina", "spine")]
    facts += [fact(image, "label", name, value="present" if at % 3 == 0 else "absent")
              for at, image in enumerate(IMAGES) for name in ("Edema", "Pneumonia")]  # fmt: skip
    facts += [fact(image, "box", "Edema", (0, 0, 50, 50), group=f"g{image}") for image in IMAGES[::3]]
    facts += [fact("i01", "box", "Edema", (0, 0, 50, 50), group="gone", reader="R1")]
    pair = {"split": "train", "type": "basic", "target": "edema", "instruction": "Segment it.", "answer": "[SEG]"}
    pairs = [
        pair | {"image_id": image, "pair_id": f"{image}_{seg}", "seg": seg, "mask_id": f"m{image}" if seg else None}
        for at, image in enumerate(IMAGES) for seg in ((True, False) if at < 3 else (False,))
    ]  # fmt: skip
    texts = [
        {"image_ids": list(some), "text": "Edema.", "engine": "rules"}
        for some in zip(IMAGES[:-1:2], IMAGES[1::2], strict=True)
    ]
    talks = [conversation(f"c{image}", at % 2 == 0, image) for at, image in enumerate(IMAGES)]
    return facts, {"texts": texts, "conversations": talks, "pairs": pairs}


ASKED = rows_from_options([
    {"task": "report_generation", "source": "people", "repeat": 1, "most": 3},
    {"task": "classification", "source": "people", "repeat": 2},
    {"task": "anatomical_grounding", "source": "people", "repeat": 1},
    {"task": "abnormality_grounding", "source": "people", "repeat": 2, "most": 2},
    {"task": "conversation", "source": "people", "repeat": 1},
    {"task": "absent_grounding", "source": "people", "repeat": 1},
    {"task": "ils_segmentation", "source": "people", "repeat": 1},
])  # fmt: skip


def test_all_that_is_given_is_accounted_for_and_no_line_depends_on_blocks(tmp_path, monkeypatch):
    facts, lines = everything()
    pairs = tasks.balance_pairs(lines["pairs"], 3)
    made, _, left = written(blocks_of(tmp_path / "one", facts, IMAGES, **lines), ASKED, SEED, pairs)
    monkeypatch.setattr(source_block, "BLOCK_SIZE", 2)
    some, _, same = written(blocks_of(tmp_path / "two", facts, IMAGES, **lines), ASKED, SEED, pairs)
    places = [IMAGES.index(line["image_id"]) // 2 for line in some]
    assert places == sorted(places)  # block by block
    assert sorted(some, key=str) == sorted(made, key=str)
    assert len({line["sample_id"] for line in made}) == len(made)
    assert same.equals(left)
    assert Counter(line["task"] for line in made) == {
        "report_generation": 3, "classification": 18, "anatomical_grounding": 9, "abnormality_grounding": 4,
        "conversation": 4, "absent_grounding": 4, "ils_segmentation": 6,
    }  # fmt: skip
    told = {(what, outcome): number for _, what, outcome, number in left.iter_rows()}
    assert told == {
        ("texts", "all"): 8, ("texts", "used"): 3, ("texts", "not_drawn"): 5,
        ("conversations", "all"): 9, ("conversations", "used"): 4, ("conversations", "not_in_mix"): 5,
        ("pairs", "all"): 12, ("pairs", "used"): 6, ("pairs", "not_drawn"): 6,
        ("label", "all"): 18, ("label", "used"): 18, ("region", "all"): 18, ("region", "used"): 9,
        ("region", "not_drawn"): 9, ("box", "all"): 4, ("box", "used"): 2, ("box", "not_drawn"): 1,
        ("box", "reader"): 1,
    }  # fmt: skip


def test_what_a_task_forgets_and_what_a_block_loses_stop_the_job(tmp_path, monkeypatch):
    facts, lines = everything()
    pairs = tasks.balance_pairs(lines["pairs"], 3)
    blocks = blocks_of(tmp_path, facts, IMAGES, **lines)
    with monkeypatch.context() as patch:
        patch.setitem(tasks.UNITS_BY_TASK, "conversation", lambda given, how: iter(()))
        with pytest.raises(AssertionError, match="a record of conversations is neither used nor excluded"):
            written(blocks, ASKED, SEED, pairs)
    blocks._edges[-1] -= 1
    with pytest.raises(AssertionError, match="region: 18 in, 17 accounted for"):
        written(blocks, ASKED, SEED, pairs)


def test_a_table_of_facts_that_is_not_sorted_is_refused(tmp_path):
    blocks_of(tmp_path, [])
    facts = [fact(image, "region", "carina", (0, 0, 50, 50)) for image in ("i2", "i1")]
    write_table(tmp_path / "facts.parquet", pl.DataFrame(facts, schema=FACTS_SCHEMA), FACT_COLUMNS)
    images = pl.DataFrame(schema=IMAGES_SCHEMA)
    with pytest.raises(ValueError, match=r"facts.parquet is not sorted by image"):
        Blocks("people", images, str(tmp_path / "facts.parquet"), {}, {})


def test_every_image_gets_one_of_another_patient_with_its_view():
    rows = [
        {"source": "a", "image_id": name, "subject_id": name[0], "view": view}
        for name, view in (("p1", "PA"), ("p2", "PA"), ("q1", "PA"), ("r1", "AP"), ("s1", "AP"), ("t1", None))
    ]
    found = pair_images(rows, 1)
    assert found == {("a", "p1"): "q1", ("a", "p2"): "q1", ("a", "q1"): "p1", ("a", "r1"): "s1", ("a", "s1"): "r1"}
    assert pair_images(rows[::-1], 1) == found


def test_a_subject_that_trains_by_its_validation_split_leaves_validate():
    index = pl.DataFrame(
        [("ms", "p1", "train", "validate"), ("mimic", "p1", "validate", "validate"),
         ("mimic", "p2", "validate", "validate"), ("padchest", "p1", "validate", "validate"),
         ("mimic", "p3", "train", "train")],
        schema=["source", "subject_id", "split", "source_split"], orient="row",
    ).with_columns(part=pl.lit(0), row=pl.int_range(pl.len()))  # fmt: skip
    kept, gone = drop_conflicts(index, {"ms": "mimic", "mimic": "mimic", "padchest": "padchest"})
    assert gone.select("source", "subject_id").rows() == [("mimic", "p1")]
    assert kept.height == 4


# ---- answers can be read back ---------------------------------------------------------------------------------------


FILLED = {
    "report": "The lungs are clear.", "findings": "edema and support devices", "number": "2", "region": "right lung",
    "finding": "edema",
    "items": "edema [0.10, 0.20, 0.30, 0.40]; mass [0.00, 0.00, 0.50, 0.50] and [0.1, 0.1, 0.2, 0.2]",
    "boxes": "[0.10, 0.20, 0.30, 0.40] and [0.00, 0.00, 0.10, 0.10]", "answer": "It possibly reflects edema. ",
}  # fmt: skip
UNIT, SEEN = CONVENTIONS["unit"], InputSize(100, 100)
ANYTHING = {("report_generation", "answers"), ("ils_grounding", "none")}
"""Answers without a word of ours: a report, and the data set's own denial."""


def test_no_wording_of_a_task_fits_the_reader_of_another():
    for task, one in load_wordings().items():
        for kind, frames in one.answers.items():
            for text in frames.values():
                said = fill_slots(text, FILLED)
                readers = {
                    other
                    for other in load_wordings()
                    if (found := read_back(other, said, UNIT, SEEN)) and (other, found.kind) not in ANYTHING
                }
                assert readers == ({task} if (task, kind) not in ANYTHING else set()), said


def test_what_an_answer_says_is_read_back():
    found = read_back("abnormality_detection", fill_slots("I mark {items}.", FILLED), UNIT, SEEN)
    assert (found.kind, found.names) == ("some", ("edema", "mass"))
    assert found.boxes == {"edema": [[0.1, 0.2, 0.3, 0.4]], "mass": [[0.0, 0.0, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]}
    found = read_back("classification", "I can identify nothing abnormal.", UNIT, SEEN)
    assert (found.kind, found.names) == ("none", ())
    assert read_back("classification", "I can identify edema", UNIT, SEEN) is None


# ---- conversations --------------------------------------------------------------------------------------------------


def conversation(name: str, grounded: bool, image="i1") -> dict:
    where = " <box:heart>" if grounded else ""
    turns = [{"question": f"q{n}", "answer": f"a{n}{where}", "act": "x", "wording": f"w{n}"} for n in range(5)]
    boxes = {"heart": [[0.1, 0.2, 0.3, 0.4]]} if grounded else {}
    return {"conversation_id": name, "image_id": image, "grounded": grounded, "engine": "rules", "turns": turns,
            "boxes": boxes, "mask_ids": [], "facts": ["f1", "s1#2"]}  # fmt: skip


def test_conversations_keep_their_turns_in_every_pass():
    talks = [conversation("c1", False), conversation("c2", True), conversation("c3", False, "gone")]
    rows = rows_from_options([
        {"task": "conversation", "source": "people", "repeat": 1},
        {"task": "conversation_grounded", "source": "people", "repeat": 4},
    ])  # fmt: skip
    first, line, *others = SampleWriter(SEED, rows).lines(given_of([], conversations=talks))
    assert (first["task"], {other["task"] for other in (line, *others)}) == ("conversation", {"conversation_grounded"})
    assert (len(others), len({other["sample_id"] for other in (first, line, *others)})) == (3, 5)
    assert all(other["turns"] == line["turns"] for other in others)
    assert line["turns"][4] == {"question": "q4", "answer": "a4 <box:heart>", "wording": "w4"}
    assert (line["boxes"], line["facts"], line["engine"]) == (talks[1]["boxes"], ["f1", "s1#2"], "rules")

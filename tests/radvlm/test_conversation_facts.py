"""What a conversation may rest on, and the line that it is written as."""

import polars as pl

from cxr.radvlm.conversations.engine import Conversation, Turn
from cxr.radvlm.conversations.facts import ImageFacts, Phrase, gather_facts, index_masks
from cxr.radvlm.conversations.topics import collect_subjects
from cxr.radvlm.conversations.wordings import load_wordings
from cxr.radvlm.samples import box_slot
from cxr.radvlm.sources.facts import FACTS_SCHEMA, IMAGES_SCHEMA


def pair(number, target, kind, seg=True):
    return {
        "pair_id": f"p{number}",
        "image_id": "a",
        "seg": seg,
        "mask_id": f"m{number}",
        "type": kind,
        "target": target,
    }


def test_a_mask_of_all_of_a_finding_is_preferred():
    pairs = [pair(1, "edema", "basic"), pair(2, "edema", "global"), pair(3, "opacity", "basic"),
             pair(4, "opacity", "basic"), pair(5, "effusion", "global", seg=False)]  # fmt: skip
    assert index_masks(pairs) == {"a": {"edema": "m2", "opacity": "m3"}}


def facts_of_tables(**changed):
    images = [
        {"source": "own", "image_id": name, "study_id": "s1", "subject_id": "p1", "split": split, "view": view,
         "rows": 200, "columns": 100}
        for name, split, view in (("b", "train", "PA"), ("a", "train", ""), ("c", "test", "AP"))
    ]  # fmt: skip
    box = {"x1": 10.0, "y1": 20.0, "x2": 30.0, "y2": 40.0}
    facts = [
        {"fact_id": "f1", "kind": "label", "name": "Edema", "value": "absent", "stated": "uncertain"},
        {"fact_id": "f2", "kind": "label", "name": "Pneumothorax", "value": "absent", "stated": "absent"},
        {"fact_id": "f3", "kind": "label", "name": "Fracture", "value": "present", "stated": None},
        {"fact_id": "f4", "kind": "phrase", "name": "Old words.", "group": "g1", **box},
        {"fact_id": "f5", "kind": "phrase", "name": "Old words.", "group": "g2", **box, "reader": "extra"},
    ]
    facts = [{"image_id": "b"} | fact for fact in facts]
    texts = [{"image_ids": ["b", "c"], "sentences": [{"from": 1, "text": None}, {"from": 2, "text": "Clear."}]}]
    phrases = [{"image_id": "b", "group": group, "text": f"New words {group}."} for group in ("g1", "g2", "g3")]
    table = pl.DataFrame(images, IMAGES_SCHEMA).filter(pl.col("split").is_in(["train", "validate"]))
    given = {"images": table, "facts": pl.DataFrame(facts, FACTS_SCHEMA), "texts": texts, "phrases": phrases}
    return gather_facts(**given, **changed)


def test_the_facts_of_an_image():
    first, second = facts_of_tables(masks={"b": {"edema": "m"}})
    assert (first.image_id, first.view, first.sentences, first.present, first.phrases) == ("a", None, {}, (), ())
    assert (second.image_id, second.view, second.sentences) == ("b", "PA", {2: "Clear."})
    assert (second.present, second.absent) == (("Fracture",), ("Pneumothorax",))  # what is uncertain is neither
    assert second.ids == {"Edema": "f1", "Pneumothorax": "f2", "Fracture": "f3"}
    assert second.phrases == (Phrase("New words g1.", ((0.1, 0.1, 0.3, 0.2),), ("f4",)),)
    assert second.masks == {"edema": "m"}


def test_the_line_of_a_conversation():
    turn = Turn("Where is it?", f"Here: {box_slot('effusion')}.", "where", "where.1")
    one = Conversation((turn,), {"effusion": ((0.1, 0.1, 0.3, 0.2),)}, ("m1",), ("f4",))
    assert one.to_line({"image_id": "b"}, "rules", {"code": "c"}) == {
        "image_id": "b",
        "engine": "rules",
        "turns": [
            {"question": "Where is it?", "answer": "Here: <box:effusion>.", "act": "where", "wording": "where.1"}
        ],
        "boxes": {"effusion": [[0.1, 0.1, 0.3, 0.2]]},
        "mask_ids": ["m1"],
        "facts": ["f4"],
        "digests": {"code": "c"},
    }


def test_a_label_that_a_source_denies_is_a_denial_without_a_report():
    """Each label of one finding; several lesion types, and entities, have one alone."""
    labels = ("Cardiomegaly", "Consolidation", "Edema", "Pneumonia", "Atelectasis", "Pleural Effusion", "Pneumothorax")
    facts = ImageFacts("own", "i", "s", "p", "train", absent=labels, ids={label: f"f {label}" for label in labels})
    denials = collect_subjects(facts, (), load_wordings()).denials
    assert {denial.facts for denial in denials} == {(f"f {label}",) for label in labels}
    assert {(denial.statement.entity, denial.statement.lesion) for denial in denials} == {
        ("cardiomegaly", "cardiomegaly"), ("consolidation", "consolidation"), ("edema", "edema"),
        ("pneumonia", "pneumonia"), ("atelectasis", "atelectasis"), ("pleural effusion", "effusion"),
        ("pneumothorax", None),
    }  # fmt: skip

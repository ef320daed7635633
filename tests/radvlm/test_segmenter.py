"""ROSALIA as a tool of RadVLM: what it is asked, that its masks are its own, and that they stand beside the turns."""

import numpy as np
import pytest

from asking_options import OPTIONS
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, write_lines
from cxr.base.vocabulary import LESIONS
from cxr.ils.inference.infer import run_split
from cxr.ils.templates import GLOBAL, Instruction, parse_instruction
from cxr.radvlm.evaluation.segmenter import AskedOptions, instructions_of, run_asked, run_beside, run_ils
from cxr.workflow.plan_vlm import vlm_plan
from cxr.workflow.radvlm_segmenting import segmenting
from cxr.workflow.settings import Settings
from tiny_rosalia import ONE, Tiny, lines_of, make

CPU = {"device": "cpu", "batch": 8}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Tiny:
    return make(tmp_path_factory.mktemp("tiny"))


def rosalia(tiny: Tiny, lines, folder, *, may_be_empty: bool = False) -> tuple:
    """Return what ROSALIA writes for pairs: its lines, and {pair_id: mask}."""
    folder.mkdir(exist_ok=True)
    run_split(
        model=tiny.model, lines=lines, frames=tiny.frames, predictions=folder / "p.jsonl",
        prediction_masks=folder / "p.h5", options=OPTIONS, attrs={}, compute=CPU, may_be_empty=may_be_empty,
    )  # fmt: skip
    with Shard(folder / "p.h5", key="pair_id") as shard:
        return list(read_lines(folder / "p.jsonl")), {name: shard.get("mask", name) for name in shard.ids}


def pairs() -> list[dict]:
    """The pairs of the tiny model's data with the other fields of the dataset."""
    return [one | {"subject_id": f"p{one['study_id']}", "type": "global"} for one in lines_of()]


def answer(sample: str, turn: int, text: str, failure: str = "") -> dict:
    return {"sample_id": sample, "turn": turn, "text": text, "failure": failure}


def talk(name: str, image: str, turns: list[tuple[str, str]], source: str = "own") -> tuple[dict, list[dict]]:
    """A conversation about an image, and a model's answers to it."""
    line = {"sample_id": name, "task": "conversation", "source": source, "image_id": image, "facts": []}
    asked = [{"question": question, "answer": "another"} for question, _ in turns]
    return line | {"turns": asked}, [answer(name, turn, text) for turn, (_, text) in enumerate(turns)]


@pytest.mark.parametrize(
    ("turns", "wanted"),
    [
        ([("Outline the heart.", "I have outlined the enlarged heart: [SEG]")], [(0, 0, "Segment the cardiomegaly.")]),
        ([("Segment the edema.", "[SEG] There is no edema.")], [(0, 0, "Segment the edema.")]),
        # "it" is what was said before, be it an answer or a question
        ([("What is there?", "A small left pleural effusion."), ("Outline it.", "Here it is: [SEG]")],
         [(1, 0, "Segment the effusion.")]),
        ([("Is there an opacity?", "Yes."), ("Outline it.", "[SEG]")], [(1, 0, "Segment the opacity.")]),
        # two in one answer, each with its own finding
        ([("Outline both.", "The opacity: [SEG] and the left consolidation: [SEG]")],
         [(0, 0, "Segment the opacity."), (0, 1, "Segment the consolidation.")]),
        # none of the seven, after one of the seven; nothing at all
        ([("What?", "An effusion."), ("Outline the pneumothorax.", "[SEG]")], [(1, 0, "Outline the pneumothorax.")]),
        ([("Outline it.", "[SEG]")], [(0, 0, "Outline it.")]),
        ([("Where is the edema?", "At [0.10, 0.20, 0.30, 0.40].")], []),
    ],
)  # fmt: skip
def test_an_answers_seg_asks_for_the_finding_that_was_named_last(turns, wanted):
    assert list(instructions_of(turns)) == wanted


def test_rosalia_knows_the_instruction_of_every_lesion():
    for lesion in LESIONS:
        ((_, _, text),) = instructions_of([("Outline it.", f"The mask of the {lesion}: [SEG]")])
        assert parse_instruction(text) == Instruction(GLOBAL, lesion, ())


def test_the_tools_masks_of_ils_pairs_are_rosalias_own(tiny, tmp_path):
    """Masks, texts and notes are those of the same pairs without RadVLM, whatever it answered, even nothing."""
    write_lines(tmp_path / "pairs.jsonl", pairs())
    run_ils(pairs=str(tmp_path / "pairs.jsonl"), lines=str(tmp_path / "lines.jsonl"))
    said = [answer(one["pair_id"], 0, "No.", "too_long" if number % 2 else "") for number, one in enumerate(pairs())]
    write_lines(tmp_path / "answers.jsonl", said)
    told = {"lines": str(tmp_path / "lines.jsonl"), "answers": str(tmp_path / "answers.jsonl")}
    run_asked(**told, asked=str(tmp_path / "asked.jsonl"), options=AskedOptions("own"))
    wanted, own = rosalia(tiny, tmp_path / "pairs.jsonl", tmp_path / "own")
    found, masks = rosalia(tiny, tmp_path / "asked.jsonl", tmp_path / "tool", may_be_empty=True)
    assert found == wanted
    assert len(found) == 15
    assert masks.keys() == own.keys()
    assert {name.rpartition("_")[2] for name in masks} == {"0", "2"}  # one in three is denied without a mask
    for name, mask in own.items():
        np.testing.assert_array_equal(masks[name], mask)


def test_masks_of_a_conversation_stand_beside_its_turns(tiny, tmp_path):
    """They are those of the instruction itself about that image; each source has its own, one of them none."""
    first = talk("b", "image3", [("What is there?", "An effusion."), ("Outline it.", "[SEG]")])
    second = talk("a", "image1", [("Outline it.", "The effusion: [SEG]"), ("And now?", "Nothing.")])
    other = talk("c", "image1", [("What is there?", "Nothing.")], source="other")
    write_lines(tmp_path / "lines.jsonl", [one for one, _ in (first, second, other)])
    write_lines(tmp_path / "answers.jsonl", [one for _, said in (first, second, other) for one in said])
    files = {"asked": [], "predictions": []}
    for source in ("own", "other"):
        asked = str(tmp_path / f"{source}.asked.jsonl")
        run_asked(lines=str(tmp_path / "lines.jsonl"), answers=str(tmp_path / "answers.jsonl"), asked=asked,
                  options=AskedOptions(source))  # fmt: skip
        said, masks = rosalia(tiny, asked, tmp_path / source, may_be_empty=True)
        assert len(said) == len(masks) == (2 if source == "own" else 0)
        files["asked"].append(asked)
        files["predictions"].append(str(tmp_path / source / "p.jsonl"))
    run_beside(**files, segmented=str(tmp_path / "segmented.jsonl"))
    wanted, own = rosalia(tiny, tiny.lines, tmp_path / "whole")
    text = next(one["answer"] for one in wanted if one["pair_id"] == "p3_0")
    same = {"instruction": ONE, "text": text, "note": "", "failure": ""}
    assert list(read_lines(tmp_path / "segmented.jsonl")) == [
        {"sample_id": "b", "turn": 1, "number": 0} | same | {"mask": "b/1/0"},
        {"sample_id": "a", "turn": 0, "number": 0} | same | {"mask": "a/0/0"},
    ]
    with Shard(tmp_path / "own" / "p.h5", key="pair_id") as shard:
        np.testing.assert_array_equal(shard.get("mask", "b/1/0"), own["p3_0"])
        np.testing.assert_array_equal(shard.get("mask", "a/0/0"), own["p1_0"])
    write_lines(files["predictions"][0], [])
    with pytest.raises(UserError, match=r"lacks b/1/0, which .* asks: regenerate it"):
        run_beside(**files, segmented=str(tmp_path / "segmented.jsonl"))


def planned(**evaluation: object):
    settings = Settings.model_validate({"radvlm": {"evaluation": evaluation}})
    return segmenting(settings, vlm_plan(settings.vlm, "cpu", 0, ["all"]), ["default", "base"])


def test_rows_of_ils_stand_only_where_there_is_a_segmenter():
    none, vlm = planned()
    assert (none.rows, none.beside, vlm.asked["radvlm"]) == ({}, [], ["radvlm_test", "radvlm_exchanged"])
    tool, vlm = planned(segmenter="rosalia:base")
    assert list(tool.rows) == ["radvlm_tool"]
    assert tool.rows["radvlm_tool"]["title"] == "RadVLM + ILS, tool (radvlm)"
    assert vlm.asked["radvlm"] == ["radvlm_test", "radvlm_exchanged", "radvlm_ils"]
    assert "radvlm_ils" not in vlm.asked["medground"]


def test_a_segmenter_that_is_no_run_of_training_is_one_sentence():
    sentence = "radvlm.evaluation.segmenter is 'rosalia:mine', but the runs of training are default, base: name one"
    with pytest.raises(UserError, match=sentence):
        planned(segmenter="rosalia:mine")

"""ROSALIA as a tool of RadVLM: what it is asked, that its masks are its own, and that they stand beside the turns."""

import numpy as np
import pytest

from asking_options import OPTIONS
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, write_lines
from cxr.base.vocabulary import LESIONS
from cxr.ils.evaluation.predictions import Predictions
from cxr.ils.inference.infer import run_split
from cxr.ils.templates import GLOBAL, Instruction, parse_instruction
from cxr.radvlm.evaluation.segmenter import build_instructions, run_asked, run_beside, run_head, run_ils
from cxr.workflow.plan_radvlm import SegmentationPlan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings, parse_section
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
    assert list(build_instructions(turns)) == wanted


def test_rosalia_knows_the_instruction_of_every_lesion():
    for lesion in LESIONS:
        ((_, _, text),) = build_instructions([("Outline it.", f"The mask of the {lesion}: [SEG]")])
        assert parse_instruction(text) == Instruction(GLOBAL, lesion, ())


def test_the_tools_masks_of_ils_pairs_are_rosalias_own(tiny, tmp_path):
    """Masks, texts and notes are those of the same pairs without RadVLM, whatever it answered, even nothing."""
    write_lines(tmp_path / "pairs.jsonl", pairs())
    run_ils(pairs=str(tmp_path / "pairs.jsonl"), lines=str(tmp_path / "lines.jsonl"))
    said = [answer(one["pair_id"], 0, "No.", "too_long" if number % 2 else "") for number, one in enumerate(pairs())]
    write_lines(tmp_path / "answers.jsonl", said)
    told = {"lines": str(tmp_path / "lines.jsonl"), "answers": str(tmp_path / "answers.jsonl")}
    run_asked(**told, asked=str(tmp_path / "asked.jsonl"), source="own")
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
                  source=source)  # fmt: skip
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
        for key, pair_id in (("b/1/0", "p3_0"), ("a/0/0", "p1_0")):  # asked in another batch, which rounds differently
            assert (shard.get("mask", key) != own[pair_id]).mean() < 2e-3
    write_lines(files["predictions"][0], [])
    with pytest.raises(UserError, match=r"lacks b/1/0, which .* requests: delete .* and rerun"):
        run_beside(**files, segmented=str(tmp_path / "segmented.jsonl"))


def square(*corners: int) -> np.ndarray:
    mask = np.zeros((512, 512), bool)
    top, left, bottom, right = corners
    mask[top:bottom, left:right] = True
    return mask


@pytest.fixture
def drawn(tmp_path) -> dict:
    """Answers to four pairs and the masks of their [SEG], made by hand: one, two, none, and a failure."""
    write_lines(tmp_path / "pairs.jsonl", pairs()[:5])
    run_ils(pairs=str(tmp_path / "pairs.jsonl"), lines=str(tmp_path / "lines.jsonl"))
    texts = {"p0_1": "No edema.", "p0_0": "[SEG] Here.", "p0_2": "[SEG] and [SEG]", "p1_0": ""}  # in another order
    said = [answer(name, 0, text, "" if text else "too_long") for name, text in texts.items()]
    write_lines(tmp_path / "answers.jsonl", said)
    with ShardWriter(tmp_path / "masks.h5", key="mask_key", empty={"mask": ((512, 512), bool)}) as writer:
        for key, mask in (("p0_0/0/0", square(0, 0, 8, 8)), ("p0_2/0/0", square(10, 10, 20, 20)),
                          ("p0_2/0/1", square(15, 15, 30, 30))):  # fmt: skip
            writer.append(key, mask=mask)
    files = ("lines.jsonl", "answers.jsonl", "masks.h5", "predictions.jsonl", "prediction_masks.h5")
    return {name.partition(".")[0]: str(tmp_path / name) for name in files}


def test_masks_of_a_head_are_scored_as_predictions_of_ils(drawn):
    """The evaluation of ILS reads them: a mask, the union of two, an empty one, a failure, a pair without answer."""
    run_head(**drawn, attrs={"frame": "the frame"})
    names = [one["pair_id"] for one in pairs()[:5]]
    with Predictions(drawn["predictions"], drawn["prediction_masks"], set(names), 512) as read:
        found = [read.get(name) for name in names]
    assert [(one.answer, one.reason) for one in found] == [
        ("[SEG] Here.", ""), ("No edema.", "no_mask"), ("[SEG] and [SEG]", ""), (None, "failed"),
        (None, "no_prediction"),
    ]  # fmt: skip
    masks = [None if one.mask is None else np.unpackbits(one.mask, axis=-1).astype(bool) for one in found]
    np.testing.assert_array_equal(masks[0], square(0, 0, 8, 8))
    assert not masks[1].any()
    np.testing.assert_array_equal(masks[2], square(10, 10, 20, 20) | square(15, 15, 30, 30))
    assert masks[3:] == [None, None]
    assert [one.get("note") for one in read_lines(drawn["predictions"])] == [None, "no_seg", "several_seg", None]


def test_a_seg_that_is_spelled_has_no_mask(drawn):
    """The model wrote the word in letters: its token alone has a mask."""
    write_lines(drawn["answers"], [answer("p0_0", 0, "[SEG] [SEG]"), answer("p0_1", 0, "[SEG] here.")])
    run_head(**drawn, attrs={})
    told = {one["pair_id"]: (one["mask"], one.get("note")) for one in read_lines(drawn["predictions"])}
    assert told == {"p0_0": ("p0_0", None), "p0_1": (None, "no_seg")}


def planned(heads: tuple[str, ...] = (), tuned: tuple[str, ...] = (), **evaluation: object):
    """Plan the masks of runs, of which ``heads`` draw their own."""
    told = {name: {"engine": "onevision_tiny", "lines": "radvlm:all"} for name in tuned}
    given = {"radvlm": {"evaluation": evaluation}} | ({"vlm": {"tuning": {"runs": told}}} if tuned else {})
    settings = parse_section(Settings, given)
    vlm = VlmPlan(settings.vlm, "cpu", 0, ["all"])
    vlm.with_head = list(heads)
    return SegmentationPlan(settings, vlm, ["default", "base"]), vlm


def test_rows_of_ils_stand_only_where_there_is_a_segmenter():
    none, vlm = planned()
    assert (none.rows, none.runs, vlm.sets_by_run["radvlm"]) == ({}, [], ["radvlm_test", "radvlm_exchanged"])
    tool, vlm = planned(segmenter="rosalia:base")
    assert list(tool.rows) == ["radvlm_tool"]
    assert tool.rows["radvlm_tool"]["title"] == "RadVLM + ILS, tool (radvlm)"
    assert vlm.sets_by_run["radvlm"] == ["radvlm_test", "radvlm_exchanged", "radvlm_ils"]
    assert "radvlm_ils" not in vlm.sets_by_run["medground"]


def test_a_run_with_a_head_gets_no_tool():
    plan, vlm = planned(("one",), ("one", "two", "three"), runs=["one", "two"], segmenter="rosalia:base")
    assert plan.masked == {"one_head": ("one", "head"), "two_tool": ("two", "tool")}
    assert plan.rows["one_head"]["masks"] == "results/radvlm/evaluation/one/head/radvlm_ils.h5"
    assert [run for run, sets in vlm.sets_by_run.items() if "radvlm_ils" in sets] == ["one", "two"]
    assert plan.runs == ["two"]
    alone, _ = planned(("one",), ("one", "two"), runs=["one", "two"])
    assert list(alone.rows) == ["one_head"]


def test_a_segmenter_that_is_no_run_of_training_is_one_sentence():
    sentence = "radvlm.evaluation.segmenter is 'rosalia:mine', but the runs of training are default, base: name one"
    with pytest.raises(UserError, match=sentence):
        planned(segmenter="rosalia:mine")

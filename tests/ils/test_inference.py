"""Inference on a split: the replies of a trained model, the files, and that batches change no answer."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.sam.modeling_sam import SamVisionEncoder

from asking_options import OPTIONS
from conftest import every
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import write_lines
from cxr.ils.evaluation.predictions import Predictions
from cxr.ils.inference import panels
from cxr.ils.inference.asker import NO_SEG, SEVERAL_SEG, Asker
from cxr.ils.inference.infer import run_split, split_by_images
from cxr.ils.inference.settings import InferenceOptions
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Pairs, collate
from tiny_rosalia import ANSWERS, IMAGES, NONE, ONE, TARGET, TWO, Tiny, disc_of, lines_of, make, read

FEW = 2e-3
"""Fraction of a mask's pixels that rounding may change."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Tiny:
    return make(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """One run over all pairs, eight at a time."""
    return run(tiny, tmp_path_factory.mktemp("whole"))


def run(tiny: Tiny, folder, options: InferenceOptions = OPTIONS, lines=None, frames=None, **compute: int) -> tuple:
    made = folder / "test.jsonl", folder / "test.h5"
    run_split(
        model=tiny.model, lines=lines or tiny.lines, frames=frames or tiny.frames, predictions=made[0],
        prediction_masks=made[1], options=options, attrs={"stage": "inference"},
        compute={"device": "cpu", "batch": 8} | compute,
    )  # fmt: skip
    return made


def small(mask: np.ndarray) -> np.ndarray:
    return cv2.resize(mask.astype(np.uint8), (TARGET, TARGET), interpolation=cv2.INTER_NEAREST) > 0


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return (one & other).sum() / (one | other).sum()


def check_alike(made: tuple, expected: tuple) -> None:
    """Check that two runs give the same words, and masks that differ in few pixels: other batches round differently."""
    assert made[0].read_bytes() == expected[0].read_bytes()
    with Shard(made[1], key="pair_id") as masks, Shard(expected[1], key="pair_id") as expected_masks:
        assert masks.ids == expected_masks.ids
        for name in masks.ids:
            assert (masks.get("mask", name) != expected_masks.get("mask", name)).mean() < FEW


@pytest.mark.slow
def test_every_pair_gets_what_the_model_learnt(whole):
    lines, masks = whole
    wanted = lines_of()
    found = read(lines)
    assert [entry["pair_id"] for entry in found] == [line["pair_id"] for line in wanted]
    assert [entry["answer"] for entry in found] == [line["answer"] for line in wanted]
    assert [entry.get("note") for entry in found] == [None, NO_SEG, SEVERAL_SEG] * len(IMAGES)
    assert [entry["mask"] for entry in found] == [line["pair_id"] if line["seg"] else None for line in wanted]
    with Shard(masks, key="pair_id") as shard:
        assert shard.ids == [line["pair_id"] for line in wanted if line["seg"]]
        for number in range(len(IMAGES)):
            drawn = shard.get("mask", f"p{number}_0")
            assert drawn.shape == (TARGET, TARGET)
            assert iou(drawn, small(disc_of(number))) > 0.8
            # and not another picture's
            assert iou(drawn, small(disc_of((number + 2) % len(IMAGES)))) < 0.3


@pytest.mark.parametrize("batch", every(3, [3, 1, 2]))
def test_the_batch_changes_no_answer(tiny, whole, batch, tmp_path):
    check_alike(run(tiny, tmp_path, batch=batch), whole)


def test_the_same_batches_give_the_same_bytes(tiny, whole, tmp_path):
    made = run(tiny, tmp_path)
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in whole]


def test_half_the_bits_give_the_same_words_and_nearly_the_same_masks(tiny, whole, tmp_path):
    lines, masks = run(tiny, tmp_path, replace(OPTIONS, dtype="bfloat16"))
    assert lines.read_bytes() == whole[0].read_bytes()
    with Shard(masks, key="pair_id") as low, Shard(whole[1], key="pair_id") as full:
        both = [(low.get("mask", name), full.get("mask", name)) for name in full.ids]
    assert min(iou(*pair) for pair in both) > 0.9
    assert any((one != other).any() for one, other in both)


def test_without_text_the_masks_are_those_that_follow_a_leading_seg(tiny, whole, tmp_path):
    lines, masks = run(tiny, tmp_path, replace(OPTIONS, text=False), batch=4)
    assert {entry["answer"] for entry in read(lines)} == {None}
    with Shard(masks, key="pair_id") as quick, Shard(whole[1], key="pair_id") as slow:
        assert quick.ids == [line["pair_id"] for line in lines_of()]
        for number in range(len(IMAGES)):
            assert (quick.get("mask", f"p{number}_0") != slow.get("mask", f"p{number}_0")).mean() < FEW


@pytest.fixture(scope="module")
def asker(tiny) -> Asker:
    return Asker.load(tiny.model, OPTIONS, {"device": "cpu", "batch": 4})


@pytest.fixture(scope="module")
def samples(tiny, asker) -> list:
    pairs = Pairs(lines=str(tiny.lines), tokens=asker.tokens, options=asker.pair_options(), frames=tiny.frames)
    return [pairs[row] for row in range(len(pairs))]


def test_replies_are_those_of_the_model_asked_alone(asker, samples):
    for sample, reply in zip(samples[:3], asker.ask(samples)[:3], strict=True):
        replies = asker.model.generate(collate([sample], asker.tokens.pad).to("cpu"), OPTIONS.max_new_tokens)
        assert len(replies.masks[0]) == {ONE: 1, NONE: 0, TWO: 2}[lines_of()[samples.index(sample)]["instruction"]]
        if len(replies.masks[0]):
            np.testing.assert_allclose(reply.mask_values, replies.masks[0].amax(0), atol=1e-4)
        else:
            assert reply.mask_values is None
        if len(replies.masks[0]) == 2:
            united = (replies.masks[0][0] > 0) | (replies.masks[0][1] > 0)
            assert ((torch.from_numpy(reply.mask_values) > 0) != united).float().mean() < FEW


def test_replies_come_in_the_order_of_the_samples(asker, samples):
    order = np.random.default_rng(3).permutation(len(samples))
    straight = [reply.answer for reply in asker.ask(samples)]
    assert [reply.answer for reply in asker.ask([samples[place] for place in order])] == [straight[p] for p in order]
    assert asker.ask([]) == []


def test_pairs_of_a_picture_are_answered_together_the_short_ones_first(tiny, samples, monkeypatch):
    together, plain = [], Rosalia.generate
    monkeypatch.setattr(
        Rosalia, "generate", lambda self, batch, *rest: together.append(batch.pair_ids) or plain(self, batch, *rest)
    )
    order = np.random.default_rng(4).permutation(len(samples))
    Asker.load(tiny.model, OPTIONS, {"device": "cpu", "batch": 3}).ask([samples[place] for place in order])
    assert [{name.partition("_")[0] for name in some} for some in together] == [
        {name} for name in dict.fromkeys(f"p{place // 3}" for place in order)
    ]
    assert all(some[-1].endswith("_2") for some in together)  # the longest instruction


def counting(monkeypatch, limit: tuple[int, int] = (1000, 1000)) -> dict[str, list[int]]:
    """Note how many pictures are embedded, and pairs answered, at a time; more than the limits do not fit."""
    seen: dict[str, list[int]] = {"encode": [], "generate": []}
    for name, most, count in (("encode", limit[0], "images"), ("generate", limit[1], "input_ids")):
        plain = getattr(Rosalia, name)

        def counted(self, batch, *rest, plain=plain, name=name, most=most, count=count):
            number = len(getattr(batch, count))
            if number > most:
                raise torch.OutOfMemoryError("no room")
            seen[name].append(number)
            return plain(self, batch, *rest)

        monkeypatch.setattr(Rosalia, name, counted)
    return seen


def test_a_picture_is_embedded_once_for_all_its_instructions(tiny, monkeypatch, tmp_path):
    seen = counting(monkeypatch)
    run(tiny, tmp_path, batch=2)
    assert seen["encode"] == [2, 2, 1]
    assert sum(seen["generate"]) == len(IMAGES) * len(ANSWERS)
    assert max(seen["generate"]) == 2


def test_sams_encoder_takes_no_more_pictures_at_a_time_than_the_settings_say(tiny, whole, monkeypatch, tmp_path):
    seen, encoder = [], SamVisionEncoder.forward
    monkeypatch.setattr(
        SamVisionEncoder,
        "forward",
        lambda self, pixels, **rest: seen.append(len(pixels)) or encoder(self, pixels, **rest),
    )
    check_alike(run(tiny, tmp_path, batches={"sam": 2}), whole)
    assert seen == [2, 2, 1]


def test_a_batch_that_does_not_fit_is_halved_and_changes_nothing(tiny, whole, monkeypatch, tmp_path):
    seen = counting(monkeypatch, limit=(2, 3))
    check_alike(run(tiny, tmp_path, batch=8), whole)
    assert seen == {"encode": [2, 2, 1], "generate": [2] * 7 + [1]}


def test_a_pair_that_fails_is_a_line_with_a_reason(tiny, whole, monkeypatch, tmp_path):
    lines = lines_of()
    lines[3]["instruction"] = "Segment <image> twice."
    write_lines(tmp_path / "lines.jsonl", lines)
    with ShardWriter(tmp_path / "few.h5") as writer, Shard(tiny.frames[0]) as shard:
        for image in shard.ids[1:]:
            writer.append(image, image=shard.get("image", image))
    plain = Rosalia.generate

    def fails(self, batch, *rest):
        if "p4_2" in batch.pair_ids:
            raise ValueError("a fault of ours")
        return plain(self, batch, *rest)

    monkeypatch.setattr(Rosalia, "generate", fails)
    frames = [tmp_path / "few.h5", tiny.frames[1]]
    found = read(run(tiny, tmp_path, lines=tmp_path / "lines.jsonl", frames=frames)[0])
    faults = {entry["pair_id"]: entry["detail"] for entry in found if "failure" in entry}
    assert faults.keys() == {"p0_0", "p0_1", "p0_2", "p1_0", "p4_2"}
    assert {faults[f"p0_{place}"] for place in range(3)} == {"no_frame"}
    assert "'<image>'" in faults["p1_0"]
    stopped = "the engine stopped with ValueError in cxr.ils.inference.asker._answered"
    assert faults["p4_2"].startswith(f"engine_failure: {stopped}")
    good = {entry["pair_id"]: entry for entry in read(whole[0])}
    assert all(entry == good[entry["pair_id"]] for entry in found if "failure" not in entry)
    assert len(found) == len(good)


def test_a_picture_that_cannot_be_embedded_takes_no_other_with_it(tiny, monkeypatch, tmp_path):
    plain = Rosalia.encode

    def fails(self, batch):
        if "p2_0" in batch.pair_ids:
            raise ValueError("a fault of ours")
        return plain(self, batch)

    monkeypatch.setattr(Rosalia, "encode", fails)
    found = read(run(tiny, tmp_path)[0])
    assert [entry["pair_id"] for entry in found if "failure" in entry] == ["p2_0", "p2_1", "p2_2"]


def test_nothing_is_written_where_no_pair_could_be_asked(tiny, tmp_path):
    with ShardWriter(tmp_path / "other.h5") as writer:
        writer.append("another", image=np.zeros((512, 512), np.uint8))
    with pytest.raises(UserError, match="none of 15 pairs could be asked, the first because of 'no_frame'"):
        run(tiny, tmp_path, frames=[tmp_path / "other.h5"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.h5"]


def test_a_folder_without_a_model_is_one_sentence(tiny, tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        run(replace(tiny, model=tmp_path / "none"), tmp_path)


def test_evaluation_reads_what_is_written(whole):
    pair_ids = {line["pair_id"] for line in lines_of()}
    with Predictions(*whole, pair_ids, TARGET) as predictions:
        assert not predictions.stray
        found = {pair_id: predictions.get(pair_id) for pair_id in pair_ids}
    assert Counter(one.reason for one in found.values()) == {"": 10, "no_mask": 5}
    assert found["p1_1"].answer == ANSWERS[NONE]
    assert not found["p1_1"].mask.any()
    with Shard(whole[1], key="pair_id") as shard:
        np.testing.assert_array_equal(found["p1_2"].mask, shard.stored("mask", "p1_2"))


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5))
def test_windows_hold_whole_runs_of_images_and_every_row_once(images, count):
    made = list(split_by_images(images, count))
    assert [row for rows in made for row in rows] == list(range(len(images)))
    runs = [len([name for name, _ in groupby(images[rows.start : rows.stop])]) for rows in made]
    assert all(number == count for number in runs[:-1])
    assert all(number <= count for number in runs)
    for before, after in pairwise(made):
        assert images[before.stop - 1] != images[after.start]


CHOICE = {"studies": 3, "seed": 1}


def test_sheets_are_drawn_of_as_many_pictures_as_asked_for(tiny, whole, tmp_path):
    panels.run_panels(
        lines=str(tiny.lines), masks=[str(tiny.masks)], frames=[str(p) for p in tiny.frames],
        predictions=str(whole[0]), prediction_masks=str(whole[1]), panels=str(tmp_path / "sheets"),
        dpi=70, quality=85, **CHOICE,
    )  # fmt: skip
    made = sorted((tmp_path / "sheets").iterdir())
    assert [path.stem for path in made] == sorted(panels.choose_pairs(str(tiny.lines), **CHOICE))
    assert len(made) == 3
    for path in made:
        sheet = cv2.imread(str(path)).astype(int)[..., ::-1]
        columns = [sheet[:, int(sheet.shape[1] * first) :][:, : sheet.shape[1] // 5] for first in (0.02, 0.26, 0.49)]
        blue, orange = (
            [(np.abs(column - colour).max(-1) < 12).sum() for column in columns]
            for colour in ((0x56, 0xB4, 0xE9), (0xE6, 0x9F, 0x00))
        )
        assert blue[1] > 50 and blue[0] == blue[2] == 0  # noqa: PT018
        assert orange[2] > 50 and orange[0] == orange[1] == 0  # noqa: PT018


def test_rare_lesions_are_shown_first(tmp_path):
    lines = [
        {"pair_id": f"p{n}", "image_id": f"i{n}", "target": "effusion" if n in (7, 31) else "opacity", "seg": n != 31,
         "instruction": "a", "answer": "b", "mask_id": f"m{n}"} for n in range(40)
    ]  # fmt: skip
    write_lines(tmp_path / "lines.jsonl", lines)
    for seed in range(5):
        chosen = panels.choose_pairs(str(tmp_path / "lines.jsonl"), 2, seed)
        assert "i7" in chosen
        assert len(chosen) == 2


def test_a_sheet_shows_positives_first_and_no_more_than_fit(tmp_path):
    lines = [
        {"pair_id": f"p{n}", "image_id": "i", "target": "edema", "seg": n % 2 == 1, "instruction": "a", "answer": "b",
         "mask_id": None} for n in range(20)
    ]  # fmt: skip
    write_lines(tmp_path / "lines.jsonl", lines)
    (rows,) = panels.choose_pairs(str(tmp_path / "lines.jsonl"), **CHOICE).values()
    assert [row["pair_id"] for row in rows] == ["p1", "p3", "p5", "p7", "p9", "p11"]


def test_overlap_in_words():
    half, none = np.array([[True, True, False]]), np.zeros((1, 3), bool)
    third = np.array([[False, True, True]])
    assert panels.describe_overlap(half, third) == "IoU 0.33"
    assert panels.describe_overlap(half, none) == panels.describe_overlap(half, None) == "no mask"
    assert panels.describe_overlap(None, third) == "a mask where there is no lesion"
    assert panels.describe_overlap(None, none) == "both empty"


# ---- asked in a persona's wordings -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wordings(tmp_path_factory):
    """The layperson words two of the three instructions, as instructions that the model has learnt."""
    path = tmp_path_factory.mktemp("wordings") / "wordings.jsonl"
    told = {ONE: [NONE], NONE: [], TWO: [ONE]}
    lines = [{"instruction": text, "persona": "layperson", "wordings": texts} for text, texts in told.items()]
    lines += [{"instruction": text, "persona": "ai_developer", "wordings": [text]} for text in told]
    write_lines(path, lines, checked=True)
    return path


def reworded(tiny: Tiny, folder, wordings, persona: str) -> list[dict]:
    made = folder / f"{persona}.jsonl", folder / f"{persona}.h5"
    run_split(
        model=tiny.model, lines=tiny.lines, frames=tiny.frames, wordings=wordings, predictions=made[0],
        prediction_masks=made[1], options=replace(OPTIONS, persona=persona, seed=1), attrs={},
        compute={"device": "cpu", "batch": 8},
    )  # fmt: skip
    return read(made[0])


def test_a_personas_wording_is_what_is_asked(tiny, whole, wordings, tmp_path):
    found = reworded(tiny, tmp_path, wordings, "layperson")
    assert [entry.get("instruction") for entry in found] == [NONE, None, ONE] * len(IMAGES)
    assert [entry["answer"] for entry in found] == [ANSWERS[NONE], None, ANSWERS[ONE]] * len(IMAGES)
    assert [entry.get("failure") for entry in found] == [None, "not_asked", None] * len(IMAGES)
    with Predictions(tmp_path / "layperson.jsonl", tmp_path / "layperson.h5", {"p0_1"}, TARGET, True) as predictions:
        assert predictions.get("p0_1").reason == "not_asked"
    same = reworded(tiny, tmp_path, wordings, "ai_developer")  # in the plain words
    plain = read(whole[0])
    assert [entry["answer"] for entry in same] == [entry["answer"] for entry in plain]
    assert (tmp_path / "ai_developer.h5").stat().st_size > 0

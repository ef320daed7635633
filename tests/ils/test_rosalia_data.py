"""Pairs, images and masks from our files: samples and batches, agreeing frames, and errors for bad input."""

import json
import pickle
from dataclasses import fields
from pathlib import Path

import cv2
import h5py
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import write_lines, write_table
from cxr.geometry.affine import fit_affine, to_frame
from cxr.ils.rosalia.sampler import Draw, PairSampler
from cxr.ils.rosalia.samples import collate, make_loader, unwrap_errors
from cxr.ils.rosalia.sources import ImageTable
from cxr.ils.rosalia.tokens import IGNORED
from cxr.segmentation import images
from cxr.segmentation.head import resize_logits as logits_to_frame
from rosalia_pairs import blob, edit_line, line, pairs, picture, tokens, write
from sam_input import make_sam_input


@pytest.fixture
def given(tmp_path) -> dict:
    return write(tmp_path / "data")


def test_every_sample_holds_its_own_picture_and_mask(given):
    data = pairs(given)
    lines = [json.loads(text) for text in Path(given["lines"]).read_text().splitlines()]
    assert len(data) == len(lines) == 19
    for row in np.random.default_rng(0).permutation(len(data)):
        sample, wanted = data[int(row)], lines[row]
        assert (sample.pair_id, sample.image_id) == (wanted["pair_id"], wanted["image_id"])
        image = picture(int(wanted["image_id"][1:]))
        assert torch.equal(sample.sam, make_sam_input(image, 64)[0])
        assert torch.equal(sample.clip, images.make_clip_input(image, 32))
        mask = blob(int(wanted["mask_id"][1:])) if wanted["seg"] else np.zeros((64, 64))
        np.testing.assert_array_equal(sample.mask, mask)
        assert sample.mask.dtype == np.uint8
        text = data.tokens.encode(wanted["instruction"], wanted["answer"], "llava_v1", 4, 200)
        assert sample.input_ids.equal(text[0])
        assert sample.labels.equal(text[1])
        assert (sample.resized, sample.original) == ((64, 64), (64, 64))
    with pytest.raises(IndexError):
        data[19]


def test_pictures_are_equalised_where_the_draw_says_so(given):
    data, always = pairs(given), pairs(given, equalise=True)
    image = picture(int(data[0].image_id[1:]))
    plain, equal = (make_sam_input(one, 64)[0] for one in (image, images.equalise(image)))
    assert not torch.equal(plain, equal)
    assert torch.equal(data[Draw(0, True)].sam, equal)
    assert torch.equal(data[Draw(0, False)].sam, plain)
    assert torch.equal(data[0].sam, plain)
    assert torch.equal(always[0].sam, equal)
    assert torch.equal(always[Draw(0, False)].sam, plain)


def test_questions_have_no_answer_and_need_no_masks(given):
    asked = pairs({name: given[name] for name in ("lines", "frames")}, answers=False)[0]
    assert (asked.labels == IGNORED).all()
    assert asked.mask is None
    names = tokens().tokenizer.convert_ids_to_tokens(asked.input_ids.tolist())
    assert names[-2:] == ["▁ASSISTANT", ":"]


def test_a_batch_by_hand(given):
    """Two pairs of one image share its row; an equalised one of the same image has another."""
    data = pairs(given)
    rows = [Draw(0, False), Draw(6, False), Draw(1, False), Draw(1, True), Draw(4, False)]
    samples = [data[row] for row in rows]
    packed = collate(samples, data.tokens.pad)
    assert (packed.images.dtype, packed.masks[0].dtype) == (torch.uint8, torch.uint8)
    batch = packed.to("cpu")
    assert [sample.image_id for sample in samples] == ["i0", "i1", "i0", "i0", "i0"]
    assert batch.image_of.tolist() == [0, 1, 0, 2, 0]
    assert batch.images.shape == (3, 3, 64, 64)
    for place, sample in enumerate(samples):
        assert torch.equal(batch.images[batch.image_of[place]], sample.sam)
        assert torch.equal(batch.clip[batch.image_of[place]], sample.clip)
        length = len(sample.input_ids)
        assert torch.equal(batch.input_ids[place, :length], sample.input_ids)
        assert torch.equal(batch.labels[place, :length], sample.labels)
        assert (batch.input_ids[place, length:] == 0).all()
        assert (batch.labels[place, length:] == IGNORED).all()
        assert batch.attention[place].tolist() == [1] * length + [0] * (batch.input_ids.shape[1] - length)
        assert torch.equal(batch.masks[place], torch.from_numpy(sample.mask)[None].float())
    assert len({len(sample.input_ids) for sample in samples}) == 2
    assert batch.resized == [(64, 64)] * 3
    assert batch.original == [(64, 64)] * 5
    assert batch.pair_ids == [sample.pair_id for sample in samples]
    half = batch.to("cpu", torch.bfloat16)
    assert (half.images.dtype, half.clip.dtype, half.masks[0].dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert half.input_ids.dtype == torch.int64
    same(batch.to("cpu"), batch)


def same(one, other) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "masks":
            assert all(torch.equal(*two) for two in zip(a, b, strict=True))
        else:
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            assert type(a) is type(b)


def training(data, batch: int = 4) -> PairSampler:
    return PairSampler(data.lines.positive, batch=batch, seed=5, balance="exact", equalise=0.5, where="lines")


def test_workers_change_nothing_and_a_resume_goes_on(given):
    data = pairs(given)
    draws = training(data)
    draws.start_at(3)
    alone = list(unwrap_errors(make_loader(data, draws, 0)))
    two = list(unwrap_errors(make_loader(pickle.loads(pickle.dumps(data)), draws, 2)))
    assert len(alone) == len(two) == 4
    for one, other in zip(alone, two, strict=True):
        same(one, other)
    draws.start_at(3, 2)
    for one, other in zip(alone[2:], unwrap_errors(make_loader(data, draws, 0)), strict=True):
        same(one, other)


def centred_mask(mask: np.ndarray, fit: str) -> np.ndarray:
    return to_frame(mask.astype(np.uint8), fit_affine(mask.shape, 96, fit), 96, nearest=True) > 0


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize(
    ("frame", "fit", "agree"),
    [
        ("pad", "pad", True),
        ("stretch", "stretch", True),
        ("own", "pad", True),
        ("own", "stretch", True),
        ("stretch", "published", True),  # the authors' later code: right for stretched frames
        ("own", "published", False),  # the mismatch of the published code
        ("pad", "stretch", False),
        ("stretch", "pad", False),
    ],
)
def test_the_squares_of_a_wide_picture_agree(tmp_path, frame, fit, agree, suffix):
    """A released tree: a wide picture that is bright where its mask is, itself taken for the model's logits."""
    mask = np.zeros((80, 160), bool)
    mask[10:50, 100:150] = True
    stored = mask if frame == "own" else centred_mask(mask, frame)
    (tmp_path / "p10").mkdir()
    assert cv2.imwrite(str(tmp_path / f"p10/a{suffix}"), mask.astype(np.uint8) * 200 + 20)
    write_table(tmp_path / "pictures.tsv", pl.DataFrame({"image_id": ["i0"], "path": [f"p10/a{suffix}"]}))
    write_lines(tmp_path / "a.jsonl", [line(0, True, 0), line(0, False, 0)])
    with ShardWriter(tmp_path / "masks.h5", key="mask_id") as writer:
        writer.append("m0", mask=stored)
    given = {"lines": str(tmp_path / "a.jsonl"), "masks": [str(tmp_path / "masks.h5")]}
    given |= {"pictures": ImageTable(tmp_path / "pictures.tsv")}
    data = pairs(given, fit=fit)
    sample, negative = data[0], data[1]
    assert torch.equal(sample.sam, negative.sam)
    assert sample.resized == ((32, 64) if fit == "published" else (64, 64))
    logits = logits_to_frame(sample.levels[None].float() - 120, 64, sample.resized, sample.original)
    found, wanted = logits[0].numpy() > 0, sample.mask > 0
    overlap = (found & wanted).sum() / (found | wanted).sum()
    assert overlap > 0.88 if agree else overlap < 0.6


def test_square_pictures_are_the_same_in_every_frame(given):
    plain = [pairs(given)[row] for row in range(5)]
    for fit in ("stretch", "published"):
        other = pairs(given, fit=fit)
        for row, sample in enumerate(plain):
            assert torch.equal(sample.sam, other[row].sam)
            assert torch.equal(sample.clip, other[row].clip)
            np.testing.assert_array_equal(sample.mask, other[row].mask)
            assert (sample.resized, sample.original) == (other[row].resized, other[row].original)


BAD_LINES = [
    ("{not json", "line 3 is damaged"),
    ("[1, 2]", "line 3 has no valid 'pair_id'"),
    ({"instruction": "drop"}, "line 3 has no valid 'instruction'"),
    ({"answer": None}, "line 3 has no valid 'answer'"),
    ({"seg": 1}, "line 3 has no valid 'seg'"),
    ({"seg": True, "mask_id": None}, "line 3: the positive pair .* has no mask"),
    ({"pair_id": "s0_positive_0"}, "line 3 repeats the pair s0_positive_0"),
    ({"seg": True, "mask_id": "m99"}, "the mask m99 of the pair .* is not in .*00.h5 and 1 more"),
    ({"image_id": "i9"}, r"the image i9 of the pair .* is not in .*00.h5 and 1 more \(1 of 5 images are missing\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD_LINES)
def test_a_bad_line_is_one_sentence(given, change, message):
    with pytest.raises(UserError, match=message) as caught:
        pairs(edit_line(given, 2, change))
    assert "train.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_one_sentence(given):
    data = Path(given["lines"]).read_bytes().splitlines(keepends=True)
    Path(given["lines"]).write_bytes(data[0] + b"\xff\xfe\x00\n" + b"".join(data[1:]))
    with pytest.raises(UserError, match="line 2 is damaged"):
        pairs(given)


def test_lines_that_are_missing_or_empty_are_one_sentence(given):
    Path(given["lines"]).write_text("")
    with pytest.raises(UserError, match=r"train\.jsonl holds no pair"):
        pairs(given)
    with pytest.raises(UserError, match=r"none\.jsonl cannot be read .*run snakemake dataset"):
        pairs(given | {"lines": str(Path(given["lines"]).with_name("none.jsonl"))})


def test_a_mask_that_its_shard_lacks_is_named_with_its_pair(given):
    with ShardWriter(given["masks"][1], key="mask_id") as writer:
        writer.append("m1", mask=blob(1))
    with pytest.raises(UserError, match=r"the mask m3 of the pair s3_positive_3 is not|the mask m5 of the pair s1_pos"):
        pairs(given)
    with pytest.raises(UserError, match=r"is not in .*00\.h5: give the masks"):
        pairs(given | {"masks": given["masks"][:1]})


def test_a_missing_shard_of_frames_is_one_sentence(given):
    with pytest.raises(UserError, match=r"the image i1 of the pair .* \(2 of 4 images are missing\)"):
        pairs(given | {"frames": given["frames"][:1]})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_mask_names_its_pair_also_from_a_worker(given, workers):
    with h5py.File(given["masks"][0]) as file:
        where = file["mask"].id.get_chunk_info(0).byte_offset
    data = bytearray(Path(given["masks"][0]).read_bytes())
    data[where + 2 : where + 6] = b"\x12\x34\x56\x78"  # not ff: Fletcher's sum takes it for 00
    batches = [[row] for row in range(3)]
    Path(given["masks"][0]).write_bytes(data)
    with pytest.raises(UserError, match=r"00\.h5 is damaged: delete it and run again") as caught:
        list(unwrap_errors(make_loader(pairs(given), batches, workers)))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("pair s0_positive_0: ")


@pytest.mark.slow
def test_pictures_that_cannot_be_read_are_one_sentence(tmp_path):
    cv2.imwrite(str(tmp_path / "deep.png"), np.arange(6, dtype=np.uint16).reshape(2, 3) * 9000)
    good = cv2.imencode(".jpg", picture(0))[1].tobytes()
    (tmp_path / "cut.jpg").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.png").write_text("no picture")
    names = ["deep.png", "cut.jpg", "text.png", "none.png"]
    write_table(tmp_path / "t.csv", pl.DataFrame({"image_id": names, "path": names}))
    table = ImageTable(tmp_path / "t.csv")
    for name in names:
        remedy = "eight bits per channel .*convert it" if name == "deep.png" else "missing or damaged: fetch it"
        with pytest.raises(UserError, match=f"{name} .*{remedy}"):
            table.get(name)
    write_table(tmp_path / "bad.csv", pl.DataFrame({"image_id": names}))
    with pytest.raises(UserError, match=r"bad\.csv has no column 'path'"):
        ImageTable(tmp_path / "bad.csv")


def test_a_table_of_pictures_takes_colour(tmp_path):
    (tmp_path / "tree").mkdir()
    image = picture(3, (20, 30))
    Image.fromarray(np.repeat(image[..., None], 3, axis=2)).save(tmp_path / "tree/a.png")
    write_table(tmp_path / "t.parquet", pl.DataFrame({"image_id": ["a"], "path": ["tree/a.png"]}))
    table = ImageTable(tmp_path / "t.parquet")
    assert "a" in table
    assert "b" not in table
    np.testing.assert_array_equal(table.get("a"), image)


def test_a_text_that_is_too_long_names_its_pair(given):
    with pytest.raises(UserError, match=r"pair s0_positive_0: the instruction .* no room in max_length 20"):
        pairs(given, max_length=20)[0]

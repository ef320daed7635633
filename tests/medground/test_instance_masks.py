"""Masks however they are encoded: read to the pixel, or one row with a reason. The truth is a rectangle set by hand."""

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import Dataset, uid

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.medground.logic.facts import Facts, read_planes
from cxr.medground.sources.pixels import looks_inverted
from dicom_files import dataset, encoded
from medground_data import read_source, source_keys

SHAPE = (64, 64)
TRUTH = np.zeros(SHAPE, bool)
TRUTH[10:30, 10:30] = True
ONES, GREYS = TRUTH.astype(np.uint8), TRUTH.astype(np.uint8) * 255
ALL = np.full(SHAPE, 255, np.uint8)
WHITE, BLACK, RED = (255, 255, 255), (0, 0, 0), (200, 0, 0)


def excluded(folder, name: str, **more: object) -> dict[str, tuple[str, str]]:
    """Read a source of one picture with the mask ``name``; return {image: (reason, detail)} of what is excluded."""
    keys = source_keys(kind="folder", manifest=str(folder / "m.csv"), classes={"dot": {}, "bar": {}})
    keys |= more.pop("keys", {})
    cv2.imwrite(str(folder / "a.png"), np.random.default_rng(0).integers(0, 255, SHAPE, np.uint8))
    (folder / "m.csv").write_text(f"image_path,mask_path,split,class\na.png,{name},test,dot\n")
    read_source(folder, keys, size=64, **more)
    table = read_table(folder / "sources/excluded.parquet")
    return {
        image: (reason, detail) for image, reason, detail in table.select("image_id", "reason", "detail").iter_rows()
    }


def mask_of(folder, label: str = "dot") -> np.ndarray:
    with Shard(folder / "sources/00.h5") as shard:
        return read_planes(shard, Facts.from_shard(shard), "a").mask[label]


def palette(*colours: tuple, plane: np.ndarray = ONES) -> Image.Image:
    """Return a picture whose pixels number colours."""
    picture = Image.frombytes("P", SHAPE[::-1], plane.tobytes())
    picture.putpalette([part for colour in colours for part in colour])
    return picture


def merged(mode: str, *planes: np.ndarray) -> Image.Image:
    return Image.merge(mode, [Image.fromarray(plane) for plane in planes])


PICTURES = {
    "grey.png": Image.fromarray(GREYS),
    "ones.png": Image.fromarray(ONES),
    "one_bit.png": Image.fromarray(GREYS).convert("1"),
    "one_bit.bmp": Image.fromarray(GREYS).convert("1"),
    "one_bit.tif": Image.fromarray(GREYS).convert("1"),
    "sixteen_bits.png": Image.fromarray(ONES.astype(np.uint16) * 40_000),
    "integers.tif": Image.fromarray(ONES.astype(np.int32) * 70_000),
    "floats.tif": Image.fromarray(ONES.astype(np.float32)),
    "lossless.webp": Image.fromarray(GREYS),
    "frame.gif": Image.fromarray(GREYS),
    "black_and_red.png": palette(BLACK, RED),
    "white_first.png": palette(WHITE, BLACK),
    "white_first.bmp": palette(WHITE, BLACK),
    "white_first.tif": palette(WHITE, BLACK),
    "white_first.gif": palette(WHITE, BLACK),
    "white_and_red.png": palette(WHITE, RED),
    "two_reds.png": palette(RED, RED),
    "counted_colours.png": palette(WHITE, BLACK, plane=1 - ONES),  # the lesion is white: a program sorted the colours
    "adaptive.png": Image.fromarray(GREYS).convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE, colors=2),
    "far_apart.png": palette(*[BLACK] * 7, RED, plane=ONES * 7),
    "opaque.png": merged("LA", GREYS, ALL),
    "alpha_alone.png": merged("LA", ALL, GREYS),
    "black_with_alpha.png": merged("LA", 0 * GREYS, GREYS),
    "grey_and_alpha.png": merged("LA", GREYS, GREYS),
    "drawn.png": merged("RGBA", ONES * 200, 0 * ONES, 0 * ONES, GREYS),
    "white_below.png": merged("RGBA", ALL, 255 - GREYS, 255 - GREYS, GREYS),  # white where it is transparent
    "half.png": merged("RGBA", ALL, ALL, ALL, ONES * 128),
    "black_drawn_over.png": merged("RGBA", GREYS, GREYS, GREYS, np.where(np.arange(64)[:, None] < 40, ALL, 0)),
    "red.png": merged("RGB", ONES * 200, 0 * ONES, 0 * ONES),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_mask_of_two_values_is_read_to_the_pixel(tmp_path, name):
    more = {"lossless": True} if name.endswith("webp") else {}
    PICTURES[name].save(tmp_path / name, **more)
    assert excluded(tmp_path, name) == {}
    np.testing.assert_array_equal(mask_of(tmp_path), TRUTH)


ARRAYS = {
    "bool": TRUTH, "planes_first": ONES[None], "planes_last": GREYS[..., None], "long": ONES.astype(np.int64),
    "half": ONES.astype(np.float16) / 2, "colours": np.dstack([GREYS] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_a_mask_in_an_array_is_read_to_the_pixel(tmp_path, name):
    np.save(tmp_path / "m.npy", ARRAYS[name])
    assert excluded(tmp_path, "m.npy") == {}
    np.testing.assert_array_equal(mask_of(tmp_path), TRUTH)


def segmentation(frames: int = 1) -> Dataset:
    """Return a DICOM segmentation of one bit for each pixel."""
    ds = dataset(ONES, 8)
    ds.SOPClassUID = uid.SegmentationStorage
    ds.BitsAllocated = ds.BitsStored = 1
    ds.HighBit, ds.SegmentationType, ds.NumberOfFrames = 0, "BINARY", frames
    ds.PixelData = np.packbits(np.tile(ONES.ravel(), frames), bitorder="little").tobytes()
    return ds


DICOM = {
    "bytes": (dataset(GREYS, 8), uid.ExplicitVRLittleEndian),
    "ones": (dataset(ONES, 8), uid.ImplicitVRLittleEndian),
    "twelve bits, lossless": (dataset(ONES.astype(np.uint16) * 4095, 12), uid.JPEGLSLossless),
    "low is white": (
        dataset(255 - GREYS, 8, PhotometricInterpretation="MONOCHROME1"),
        uid.ExplicitVRLittleEndian,
    ),
    "segmentation": (segmentation(), uid.ExplicitVRLittleEndian),
}


@pytest.mark.parametrize("name", DICOM)
def test_a_dicom_mask_is_read_to_the_pixel(tmp_path, name):
    (tmp_path / "m").write_bytes(encoded(*DICOM[name]))
    assert excluded(tmp_path, "m") == {}
    np.testing.assert_array_equal(mask_of(tmp_path), TRUTH)


NOISE = np.clip(GREYS.astype(int) + np.random.default_rng(0).integers(-9, 10, SHAPE), 0, 255).astype(np.uint8)
LARGE = np.ones(SHAPE, bool)
LARGE[:2], LARGE[-2:], LARGE[:, :5], LARGE[:, -4:] = False, False, False, False
THIRDS = np.repeat(np.arange(3), [20, 20, 24]).astype(np.uint8)[:, None] * np.ones((1, 64), np.uint8)
REFUSED = {
    "noise.png": (Image.fromarray(NOISE), "unknown_label", "values, 0 to 255: set medground.sources.mask_threshold"),
    "three.png": (palette(BLACK, RED, WHITE, plane=THIRDS), "unknown_label", "the mask has 3 values, 0 to 2"),
    "colours.png": (palette(BLACK, RED, WHITE, plane=THIRDS).convert("RGB"), "unknown_label", "the mask has 3 colours"),
    "white_ground.png": (palette(WHITE, RED).convert("RGB"), "unknown_label", "the mask has 2 colours"),
    "inverted.png": (Image.fromarray(255 - GREYS), "inverted_mask", "90% of the image is foreground"),
    "most.png": (Image.fromarray(LARGE.astype(np.uint8)), "inverted_mask", "81% of the image is foreground"),
    "ring.png": (
        Image.fromarray(np.pad(np.zeros((40, 40), np.uint8), 12, constant_values=255)),
        "inverted_mask",
        "61%",
    ),
    "halves.png": (palette(WHITE, BLACK, plane=THIRDS // 2), "unknown_label", "either of the palette's two colours"),
    "all.png": (palette(BLACK, RED, plane=np.ones(SHAPE, np.uint8)), "full_mask", ""),
    "none.png": (palette(BLACK, RED, plane=np.zeros(SHAPE, np.uint8)), "empty_mask", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mask_that_may_mean_two_things_is_refused(tmp_path, name):
    picture, reason, words = REFUSED[name]
    picture.save(tmp_path / name)
    ((code, detail),) = excluded(tmp_path, name).values()
    assert code == reason
    assert words in detail


def test_pages_frames_and_odd_arrays_are_refused(tmp_path):
    Image.fromarray(GREYS).save(tmp_path / "p.tif", save_all=True, append_images=[Image.fromarray(255 - GREYS)])
    assert excluded(tmp_path, "p.tif") == {"a": ("multi_frame", "the mask has 2 pages: give each class its own file")}
    (tmp_path / "s").write_bytes(encoded(segmentation(2), uid.ExplicitVRLittleEndian))
    assert excluded(tmp_path, "s") == {"a": ("multi_frame", "the mask has 2 frames: give each class its own file")}
    for number, odd in enumerate([np.zeros((2, 64, 64)), np.zeros(9), ONES.astype(str), ONES.astype(complex)]):
        np.save(tmp_path / f"{number}.npy", odd)
        assert excluded(tmp_path, f"{number}.npy")["a"][0] == "undecodable"
    (tmp_path / "cut").write_bytes(encoded(*DICOM["bytes"])[:900])
    assert excluded(tmp_path, "cut")["a"][0] == "undecodable"


def test_the_largest_foreground_is_a_setting(tmp_path):
    Image.fromarray(255 - GREYS).save(tmp_path / "m.png")
    assert excluded(tmp_path, "m.png", most_foreground=1) == {}
    np.testing.assert_array_equal(mask_of(tmp_path), ~TRUTH)


def test_a_mask_of_ones_needs_no_threshold(tmp_path):
    Image.fromarray(ONES).save(tmp_path / "m.png")
    assert excluded(tmp_path, "m.png", mask_threshold=128) == {}
    np.testing.assert_array_equal(mask_of(tmp_path), TRUTH)
    Image.fromarray(NOISE).save(tmp_path / "n.png")
    assert excluded(tmp_path, "n.png", mask_threshold=128) == {}
    np.testing.assert_array_equal(mask_of(tmp_path), TRUTH)


def test_the_indices_of_a_palette_are_values_of_classes_and_instances(tmp_path):
    palette(WHITE, RED, BLACK, plane=THIRDS).save(tmp_path / "m.png")
    assert excluded(tmp_path, "m.png", keys={"mask_values": {"1": "dot", "2": "bar"}}) == {}
    for number, label in ((1, "dot"), (2, "bar")):
        np.testing.assert_array_equal(mask_of(tmp_path, label), number == THIRDS)
    assert excluded(tmp_path, "m.png", keys={"mask_kind": "instances"}) == {}
    with Shard(tmp_path / "sources/00.h5") as shard:
        np.testing.assert_array_equal(shard.get("instances", "a"), THIRDS)


@pytest.mark.parametrize("value", [-1, 65_536, 1.5, np.nan])
def test_a_value_that_is_no_number_of_an_instance_is_refused(tmp_path, value):
    plane = ONES.astype(np.float64)
    plane[50, 50] = value
    np.save(tmp_path / "m.npy", plane)
    assert excluded(tmp_path, "m.npy", keys={"mask_kind": "instances"}) == {
        "a": ("unknown_label", f"the value {float(value)} is not an instance number")
    }


def test_real_lesions_of_any_size_do_not_look_inverted():
    """A disc of 70 % of the picture reaches its edges, and leaves its corners; its complement is a frame."""
    y, x = np.mgrid[:64, :64] - 31.5
    for share in (0.1, 0.3, 0.5, 0.7, 0.78):
        disc = np.hypot(x, y) < 64 * np.sqrt(share / np.pi)
        assert not looks_inverted(disc)
        assert share > 0.45 or looks_inverted(~disc)

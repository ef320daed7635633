"""Pixels for SAM and CLIP, mask targets and the way back of logits, against other implementations."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from cxr.segmentation import images
from cxr.segmentation.head import resize_logits
from sam_input import make_sam_input

SHAPES = [(64, 64), (100, 141), (141, 100), (37, 300), (512, 512)]


def noise(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("shape", "size"), [((100, 141), (91, 128)), ((141, 100), (128, 91)), ((64, 64), (128, 128))])
def test_sam_pixels_by_another_way(shape, size):
    """Sizes by hand (100 * 128 / 141 = 90.78); resizing each channel by itself, then float64."""
    for image in (noise((*shape, 3)), noise(shape)):
        found, shown = make_sam_input(image, 128)
        assert shown == size
        wanted = np.zeros((3, 128, 128))
        for channel, (mean, std) in enumerate(((123.675, 58.395), (116.28, 57.12), (103.53, 57.375))):
            plane = Image.fromarray(image if image.ndim == 2 else np.ascontiguousarray(image[..., channel]), "L")
            plane = plane.resize(size[::-1], Image.BILINEAR)
            wanted[channel, : size[0], : size[1]] = (np.asarray(plane, np.float64) - mean) / std
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)
        assert (found[:, size[0] :] == 0).all()
        assert (found[:, :, size[1] :] == 0).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fit", ["pad", "stretch"])
def test_levels_normalised_later_are_the_same_to_the_bit(shape, fit):
    image = noise(shape)
    pixels, shown = make_sam_input(image, 96, fit)
    levels, same = images.make_sam_levels(image, 96, fit)
    assert shown == same
    assert levels.dtype == torch.uint8
    assert torch.equal(images.normalise_levels(levels[None], [shown])[0], pixels)
    half = images.normalise_levels(levels[None], [shown], torch.bfloat16)[0]
    assert torch.equal(half, pixels.to(torch.bfloat16))


def test_the_longest_side_is_rounded_half_up():
    assert images.fit_shape((3, 8), 4, "pad") == (2, 4)  # 1.5
    assert images.fit_shape((2544, 3056), 1024, "pad") == (852, 1024)
    assert images.fit_shape((2544, 3056), 1024, "stretch") == (1024, 1024)


@pytest.mark.parametrize("shape", SHAPES)
def test_clip_pixels_are_those_of_transformers(shape):
    image = noise((*shape, 3))
    processor = CLIPImageProcessorPil(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    wanted = processor(image, return_tensors="pt")["pixel_values"][0]
    np.testing.assert_allclose(images.make_clip_input(image, 56).numpy(), wanted.numpy(), atol=1e-6)
    grey = noise(shape)
    wanted = processor(np.repeat(grey[..., None], 3, axis=2), return_tensors="pt")["pixel_values"][0]
    np.testing.assert_allclose(images.make_clip_input(grey, 56).numpy(), wanted.numpy(), atol=1e-6)


def test_stretched_clip_pixels_show_the_whole_picture():
    image = np.zeros((40, 120), np.uint8)
    image[:, :30] = 255
    padded, whole = images.make_clip_input(image, 40), images.make_clip_input(image, 40, "stretch")
    assert padded.min() == padded.amin((1, 2))[0]  # black: the bright quarter is outside the middle
    assert (padded[0] == padded[0, 0, 0]).all()
    assert (whole[0, :, :8] > whole[0, :, 15:].max()).all()


def test_mask_targets_by_hand():
    mask = np.zeros((2, 4), bool)
    mask[0, 1], mask[1, 3] = True, True
    padded = np.zeros((8, 8), np.uint8)
    padded[0:2, 2:4], padded[2:4, 6:8] = 1, 1
    stretched = np.zeros((8, 8), np.uint8)
    stretched[0:4, 2:4], stretched[4:8, 6:8] = 1, 1
    for given in (mask, mask.astype(np.uint8) * 255):
        np.testing.assert_array_equal(images.make_mask_target(given, 8, "pad"), padded)
        np.testing.assert_array_equal(images.make_mask_target(given, 8, "stretch"), stretched)
    assert images.make_mask_target(mask, 8, "pad").dtype == np.uint8


def bilinear(image: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Bilinear resampling with pixel centres at .5 and the border repeated, in float64."""
    for axis, length in enumerate(shape):
        place = np.clip((np.arange(length) + 0.5) * image.shape[axis] / length - 0.5, 0, image.shape[axis] - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, image.shape[axis] - 1)
        part = (place - low).reshape((-1, 1) if axis == 0 else (1, -1))
        image = image.take(low, axis) * (1 - part) + image.take(high, axis) * part
    return image


@pytest.mark.parametrize("target", [(64, 64), (50, 90), (301, 17)])
@pytest.mark.parametrize("resized", [(64, 64), (40, 64), (64, 33)])
def test_logits_come_back_as_another_implementation_has_it(target, resized):
    logits = np.random.default_rng(3).normal(size=(2, 16, 16)).astype(np.float32) * 5
    found = resize_logits(torch.from_numpy(logits), 64, resized, target)
    assert found.shape == (2, *target)
    assert found.dtype == torch.float32
    for one, wanted in zip(found.numpy(), logits, strict=True):
        square = bilinear(wanted.astype(np.float64), (64, 64))[: resized[0], : resized[1]]
        np.testing.assert_allclose(one, bilinear(square, target), atol=2e-5)


def test_logits_in_half_precision_are_resampled_in_single():
    logits = torch.linspace(-3, 3, 256).reshape(1, 16, 16).bfloat16()
    found = resize_logits(logits, 64, (64, 64), (64, 64))
    assert torch.equal(found, resize_logits(logits.float(), 64, (64, 64), (64, 64)))
    assert resize_logits(torch.zeros(0, 16, 16), 64, (64, 64), (20, 30)).shape == (0, 20, 30)


def test_equalising_by_hand():
    """v -> round(255 * (cdf(v) - cdf(min)) / (pixels - cdf(min)))."""
    image = np.minimum(noise((60, 80)) // 3, noise((80, 60)).T)
    counts = np.bincount(image.ravel(), minlength=256)
    below = counts.cumsum()
    first = below[image.min()]
    table = np.clip((below - first) / (image.size - first) * 255, 0, 255)
    found = images.equalise(image)
    assert np.abs(found - table[image]).max() <= 0.5 + 1e-3
    assert (found.min(), found.max()) == (0, 255)
    assert found is not image


def test_a_centred_picture_has_black_on_both_sides():
    wide, tall = images.pad_to_square(np.ones((2, 6), np.uint8)), images.pad_to_square(np.ones((5, 2, 3), np.uint8))
    assert wide.tolist() == [[0] * 6] * 2 + [[1] * 6] * 2 + [[0] * 6] * 2
    assert tall.shape == (5, 5, 3)
    assert tall[..., 0].sum(0).tolist() == [0, 5, 5, 0, 0]

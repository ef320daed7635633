"""Reading images and masks of any encoding from files: first planes of values, then a mask for each class."""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from PIL import Image as PillowImage
from pydicom.pixels import pixel_array

from cxr.base.errors import MACHINE_ERRORS, UserError, out_of_memory
from cxr.base.faults import broken_part
from cxr.dicom.decode import decode_file
from cxr.dicom.files import (
    HEAD_BYTES,
    Rejected,
    describe_error,
    detect_file_kind,
    get_number,
    get_text,
    read_dicom,
    silence_output,
)
from cxr.dicom.image import MAX_PIXELS
from cxr.dicom.pixels import list_missing_decoders
from cxr.imaging.frames.decoding import to_grey
from cxr.medground.sources.image import PERCENTILES, Refused, to_grey8

SHOWN_COLOURS = 3
"""Most colours named in the reason for excluding a coloured mask."""
PROPORTIONS = 0.01
"""Largest relative difference between the aspect ratios of a resized mask and its image."""
INVERTED_AREA, INVERTED_EDGE = 0.5, 0.75
"""Fractions of the image and of its outermost pixels above which a foreground looks inverted."""
MOST_INSTANCES = np.iinfo(np.uint16).max


def read_array(path: Path) -> np.ndarray:
    """Return the stored pixels of a PNG, JPEG, TIFF or NPY file; colours in the order R, G, B, A.

    Raises Refused with missing_file or undecodable.
    """
    if not path.is_file():
        raise Refused("missing_file")
    try:
        if path.suffix.lower() == ".npy":
            return _squeeze_array(np.load(path, allow_pickle=False))
        values = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED)
    except (ValueError, EOFError, cv2.error) as error:
        raise Refused("undecodable", str(error).splitlines()[0]) from None
    if values is None:
        raise Refused("undecodable")
    return values[..., [2, 1, 0, *range(3, values.shape[2])]] if values.ndim == 3 and values.shape[2] > 2 else values


def _squeeze_array(values: np.ndarray) -> np.ndarray:
    """Return an array as (H, W) or (H, W, colours). Raises Refused for another shape or type."""
    if values.ndim > 2:
        values = values.reshape([side for side in values.shape if side > 1])
    if (
        values.dtype.kind not in "buif"
        or values.ndim not in (2, 3)
        or (values.ndim == 3 and values.shape[2] not in (3, 4))
    ):
        raise Refused("undecodable", f"an array of the shape {values.shape} and the type {values.dtype}")
    return values


def read_mask(path: Path) -> np.ndarray:
    """Return the values (H, W) of a mask; 0 is background.

    A palette gives its indices, a DICOM file its stored values, a colour image with varying transparency its visible
    pixels. Raises Refused for several pages or frames, or for several colours without a palette.
    """
    if is_dicom(path):
        return _plane_from_colours(read_dicom_values(path))
    if path.suffix.lower() != ".npy" and path.is_file():
        indices = _palette_indices(path)
        if indices is not None:
            return indices
    return _plane_from_colours(read_array(path))


def _palette_indices(path: Path) -> np.ndarray | None:
    """Return the indices of an image with a palette, 0 background; None for any other image.

    With two colours, one of them black, either may come first in the palette; the background is the one that looks like
    it. Raises Refused if that is ambiguous, or for several pages.
    """
    try:
        with PillowImage.open(path) as picture:
            pages = getattr(picture, "n_frames", 1)
            if pages > 1:
                raise Refused("multi_frame", f"the mask has {pages} pages: give each class its own file")
            if picture.mode != "P":
                return None
            indices = np.asarray(picture)
            colours = picture.getpalette("RGB") or []
    except Refused:
        raise
    except Exception as error:  # Pillow raises what its parts raise; OpenCV reads the file, or gives the reason
        if out_of_memory(error) or broken_part(error):
            raise
        return None
    used = np.unique(indices).tolist()
    black = [index for index in used if not any(colours[3 * index : 3 * index + 3])]
    if len(used) == 2 and len(black) == 1 and black != [0]:
        by_colour, by_index = (indices != black[0]), indices != 0
        ways = [plane for plane in (by_index, by_colour) if not looks_inverted(plane)]
        if used[0] != 0:
            ways = [by_colour]
        if len(ways) != 1:
            raise Refused("unknown_label", "either of the palette's two colours may be the background")
        return ways[0].astype(np.uint8)
    return indices


def _plane_from_colours(values: np.ndarray) -> np.ndarray:
    """Return the only plane of a mask; for black and one colour, its coloured pixels.

    If the transparency varies, transparent pixels are background. Raises Refused for more colours.
    """
    if values.ndim == 2:
        return values
    if values.shape[2] == 4:
        alpha, values = values[..., 3], values[..., :3]
        if (alpha != alpha[0, 0]).any():
            visible = values[alpha > 0]
            if (visible == visible[0]).all():
                return alpha
            values = np.where(alpha[..., None] > 0, values, 0)
    if all((values[..., 0] == values[..., at]).all() for at in range(1, values.shape[2])):
        return values[..., 0]
    colours = np.unique(values.reshape(-1, values.shape[2]), axis=0)
    if len(colours) == 2 and not colours[0].any():
        return values.any(axis=2).astype(np.uint8)
    examples = ", ".join(str(tuple(colour)) for colour in colours[:SHOWN_COLOURS].tolist())
    raise Refused("unknown_label", f"the mask has {len(colours)} colours, such as {examples}")


def match_image_size(values: np.ndarray, shape: tuple[int, int], resize: str) -> np.ndarray:
    """Return a mask's values (H, W) in the size of its image. ``resize``: none or nearest.

    Raises Refused for another size; with ``nearest``, for another aspect ratio (by more than 1 %).
    """
    if values.shape == shape:
        return values
    same = abs(values.shape[1] * shape[0] / (values.shape[0] * shape[1]) - 1) <= PROPORTIONS
    if resize != "nearest" or not same:
        raise Refused("shape_mismatch", f"mask {values.shape[::-1]}, picture {shape[::-1]}")
    plain = values.astype(np.float64) if values.dtype.kind not in "u" or values.dtype.itemsize > 2 else values
    return cv2.resize(plain, shape[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def looks_inverted(mask: np.ndarray) -> bool:
    """Return whether a mask, bool (H, W), covers most of its image and of the image's outermost pixels."""
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    return bool(mask.mean() > INVERTED_AREA and edge.mean() > INVERTED_EDGE)


def binary_mask(values: np.ndarray, threshold: float, most_foreground: float) -> np.ndarray:
    """Return a binary mask as bool (H, W).

    ``threshold``: value above which pixels are foreground, in masks with values above 1; 0: such a mask must have two
    values. ``most_foreground``: largest fraction of foreground; 1: any. Raises Refused for more values, or for a mask
    that looks inverted.
    """
    levels = np.unique(values)
    if threshold <= 0 and (len(levels) > 2 or (len(levels) == 2 and levels[0] != 0)):
        remedy = "set medground.sources.mask_threshold" if levels[0] >= 0 else "give one of two values"
        raise Refused("unknown_label", f"the mask has {len(levels)} values, {levels[0]} to {levels[-1]}: {remedy}")
    mask = values > (threshold if (values > 1).any() else 0)
    share = float(mask.mean())
    if most_foreground < 1 and share < 1 and (share > most_foreground or looks_inverted(mask)):
        raise Refused("inverted_mask", f"{share:.0%} of the picture is foreground")
    return mask


def masks_by_value(values: np.ndarray, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return {class: mask} of a mask whose values stand for classes. Raises Refused for a value without a name."""
    class_by_value = {float(value): name for value, name in names.items()}
    if unknown := sorted(set(np.unique(values).tolist()) - class_by_value.keys() - {0}):
        raise Refused("unknown_label", f"the value {unknown[0]} has no class")
    masks: dict[str, np.ndarray] = {}
    for value, name in class_by_value.items():
        masks[name] = masks.get(name, np.zeros(values.shape, bool)) | (values == value)
    return masks


def instance_numbers(values: np.ndarray) -> np.ndarray:
    """Return a mask of instance numbers as uint16 (H, W). Raises Refused for values other than 0 to 65,535."""
    is_number = np.isfinite(values) & (values >= 0) & (values <= MOST_INSTANCES) & (values == np.floor(values))
    if not is_number.all():
        raise Refused("unknown_label", f"the value {values[~is_number][0]} is no number of an instance")
    return values.astype(np.uint16)


def read_class_masks(path: Path, shape: tuple[int, int], label: str, options: Mapping) -> dict[str, np.ndarray]:
    """Return {class: mask, bool ``shape``} of a file; ``label``: the class of a mask without values for classes.

    ``options``: settings of the sources and of this source. Raises Refused for a mask that does not fit them.
    """
    values = match_image_size(read_mask(path), shape, options["resize_masks"])
    if options["mask_values"]:
        return masks_by_value(values, options["mask_values"])
    return {label: binary_mask(values, options["mask_threshold"], options["most_foreground"])}


def refuse_uniform(masks: Mapping[str, np.ndarray]) -> None:
    """Raise Refused if no mask has a foreground, or if one has no background."""
    if not any(mask.any() for mask in masks.values()):
        raise Refused("empty_mask")
    if any(mask.all() for mask in masks.values()):
        raise Refused("full_mask")


def is_dicom(path: Path) -> bool:
    """Return whether a file exists and is DICOM, by its first bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return detect_file_kind(file.read(HEAD_BYTES)) == "dicom"


def read_dicom_grey(path: Path) -> np.ndarray:
    """Return a DICOM image uint8 (H, W), bones white, padding 0, scaled like other images of more than 8 bits.

    Raises Refused with a reason of the stage frames, UserError if decoders are not installed.
    """
    if missing := list_missing_decoders():
        raise UserError(f"{path.name} is DICOM, and this Python lacks decoders ({', '.join(missing)}): install them")
    try:
        with silence_output():
            return to_grey(decode_file(str(path)), "percentile", list(PERCENTILES))
    except Rejected as rejected:
        raise Refused(rejected.reason, rejected.detail) from None
    except Exception as error:  # decoders raise what their parts raise
        raise _undecodable(error) from None


def _undecodable(error: Exception) -> Refused:
    """Return the reason to exclude an image. Raises the error if the machine is at fault, not the file."""
    if out_of_memory(error) or broken_part(error) or getattr(error, "errno", None) in MACHINE_ERRORS:
        raise error
    return Refused("undecodable", describe_error(error))


def read_dicom_values(path: Path) -> np.ndarray:
    """Return the stored values (H, W) or (H, W, 3) of a DICOM mask; high values are white.

    Raises Refused for several frames, or if it cannot be decoded.
    """
    try:
        with silence_output():
            dataset = read_dicom(path)
            frames = int(get_number(dataset, "NumberOfFrames") or 1)
            if frames > 1:
                raise Refused("multi_frame", f"the mask has {frames} frames: give each class its own file")
            if int(dataset.Rows) * int(dataset.Columns) > MAX_PIXELS:
                raise Refused("undecodable", f"more than {MAX_PIXELS} pixels")
            values = pixel_array(dataset, index=0)
    except Refused:
        raise
    except Exception as error:  # decoders raise what their parts raise
        raise _undecodable(error) from None
    if get_text(dataset, "PhotometricInterpretation") == "MONOCHROME1":
        values = (1 << int(dataset.BitsStored)) - 1 - values.astype(np.int64)
    return values


def read_image(path: Path) -> np.ndarray:
    """Return an image uint8 (H, W, 3) from a DICOM file, or from one that :func:`read_array` reads. Raises Refused."""
    values = read_dicom_grey(path) if is_dicom(path) else to_grey8(read_array(path))
    return np.ascontiguousarray(values[..., :3] if values.ndim == 3 else np.repeat(values[..., None], 3, axis=2))

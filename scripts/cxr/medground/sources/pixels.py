"""Readers of image and mask files in many encodings. A mask file becomes a plane of values, then one mask per class."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from PIL import Image as PillowImage
from pydicom.pixels import pixel_array

from cxr.base.errors import MACHINE_ERRORS, UserError, out_of_memory
from cxr.base.faults import broken_part
from cxr.dicom import files
from cxr.dicom.decode import decode_file
from cxr.dicom.files import Rejected
from cxr.dicom.image import MAX_PIXELS
from cxr.dicom.pixels import list_missing_decoders
from cxr.imaging.frames.decoding import to_grey
from cxr.medground.sources.image import PERCENTILES, to_grey8

SHOWN_COLOURS = 3  # most colours named in the reason for excluding a coloured mask
PROPORTIONS = 0.01  # largest relative difference between the aspect ratios of a resized mask and its image
INVERTED_AREA, INVERTED_EDGE = 0.5, 0.75
"""A mask looks inverted if it covers more than these fractions of the image and of the image's outermost pixels."""
MOST_INSTANCES = np.iinfo(np.uint16).max


def read_array(path: Path) -> np.ndarray:
    """Return the stored pixels of a PNG, JPEG, TIFF or NPY file, (H, W) or (H, W, C) with channels R, G, B, A. Raises
    Rejected if the file is missing or cannot be decoded."""
    if not path.is_file():
        raise Rejected("missing_file")
    is_array = path.suffix.lower() == ".npy"
    try:
        encoded = None if is_array else np.fromfile(path, np.uint8)
        values = np.load(path, allow_pickle=False) if is_array else cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED)
    except (ValueError, EOFError, cv2.error) as error:
        raise Rejected("undecodable", str(error).splitlines()[0]) from None
    if values is None:
        raise Rejected("undecodable")
    if not is_array:
        has_colours = values.ndim == 3 and values.shape[2] > 2
        return values[..., [2, 1, 0, *range(3, values.shape[2])]] if has_colours else values
    values = values.reshape([side for side in values.shape if side > 1]) if values.ndim > 2 else values
    if values.dtype.kind not in "buif" or values.ndim < 2 or values.shape[2:] not in ((), (3,), (4,)):
        raise Rejected("undecodable", f"an array of the shape {values.shape} and the type {values.dtype}")
    return values


def read_mask(path: Path) -> np.ndarray:
    """Return the values (H, W) of a mask file, 0 in the background. Raises Rejected for several pages, frames or
    colours.

    For a file with a palette, the values are the palette's indices. For DICOM, they are the stored values. If the
    transparency varies, the visible pixels are the foreground."""
    if is_dicom(path):
        return _plane_from_colours(read_dicom_values(path))
    is_image = path.suffix.lower() != ".npy" and path.is_file()
    indices = _palette_indices(path) if is_image else None
    return _plane_from_colours(read_array(path)) if indices is None else indices


def _palette_indices(path: Path) -> np.ndarray | None:
    """Return the palette's index at each pixel, with 0 for background, or None if the image has no palette.

    If a mask uses black and one other colour, which is index 0, either colour may be the background. The colour with
    which the mask does not look inverted is chosen. Raises Rejected if this holds for both or for none, or if the file
    has several pages."""
    indices = None
    try:
        with PillowImage.open(path) as picture:
            pages = getattr(picture, "n_frames", 1)
            if pages == 1 and picture.mode == "P":
                indices, colours = np.asarray(picture), picture.getpalette("RGB") or []
    except Exception as error:  # Pillow raises many kinds of errors; OpenCV then reads the file or reports the reason
        if out_of_memory(error) or broken_part(error):
            raise
        return None
    if pages > 1:
        raise Rejected("multi_frame", f"the mask has {pages} pages: give each class its own file")
    if indices is None:
        return None
    used = np.unique(indices).tolist()
    black = [index for index in used if not any(colours[3 * index : 3 * index + 3])]
    if len(used) != 2 or len(black) != 1 or black == [0]:
        return indices
    planes = [indices != black[0]]
    if used[0] == 0:
        planes = [plane for plane in (indices != 0, *planes) if not looks_inverted(plane)]
    if len(planes) != 1:
        raise Rejected("unknown_label", "either of the palette's two colours may be background")
    return planes[0].astype(np.uint8)


def _plane_from_colours(values: np.ndarray) -> np.ndarray:
    """Reduce a mask file's pixels to one plane (H, W). If all colour channels are equal, the plane is one of them. If a
    mask has black and one other colour, visible pixels of that colour are foreground. Raises Rejected otherwise."""
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
    raise Rejected("unknown_label", f"the mask has {len(colours)} colours, such as {examples}")


def match_image_size(values: np.ndarray, shape: tuple[int, int], resize: str) -> np.ndarray:
    """Return a mask in the size ``shape`` of its image. Resize it if ``resize`` is "nearest" and the aspect ratios
    agree within 1 %. Raises Rejected for any other mask of another size."""
    if values.shape == shape:
        return values
    same = abs(values.shape[1] * shape[0] / (values.shape[0] * shape[1]) - 1) <= PROPORTIONS
    if resize != "nearest" or not same:
        raise Rejected("shape_mismatch", f"the mask has {values.shape[::-1]} pixels, its image {shape[::-1]}")
    plain = values.astype(np.float64) if values.dtype.kind not in "u" or values.dtype.itemsize > 2 else values
    return cv2.resize(plain, shape[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def looks_inverted(mask: np.ndarray) -> bool:
    """Return whether a mask, bool (H, W), covers most of its image and of the image's outermost pixels."""
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    return bool(mask.mean() > INVERTED_AREA and edge.mean() > INVERTED_EDGE)


def binary_mask(values: np.ndarray, threshold: float, most_foreground: float) -> np.ndarray:
    """Return the foreground of a mask with one class, bool (H, W). Raises Rejected if ``threshold`` is 0 and the mask
    has more values than 0 and one other, or if it looks inverted.

    Values above ``threshold`` are foreground. In a mask without values above 1, values above 0 are foreground.
    ``most_foreground``: fraction of foreground above which a mask counts as inverted; 1: no mask does."""
    levels = np.unique(values)
    if threshold <= 0 and (len(levels) > 2 or (len(levels) == 2 and levels[0] != 0)):
        remedy = "set medground.sources.mask_threshold" if levels[0] >= 0 else "give a mask of 0 and one other value"
        raise Rejected("unknown_label", f"the mask has {len(levels)} values, {levels[0]} to {levels[-1]}: {remedy}")
    mask = values > (threshold if (values > 1).any() else 0)
    share = float(mask.mean())
    if most_foreground < 1 and share < 1 and (share > most_foreground or looks_inverted(mask)):
        raise Rejected("inverted_mask", f"{share:.0%} of the image is foreground")
    return mask


def masks_by_value(values: np.ndarray, names: Mapping) -> dict[str, np.ndarray]:
    """Return {class: bool (H, W)} from a mask whose values stand for classes. Raises Rejected for a value without a
    class. ``names``: {value, as number or text: class}. Several values may stand for one class."""
    class_by_value = {float(value): name for value, name in names.items()}
    if unknown := sorted(set(np.unique(values).tolist()) - class_by_value.keys() - {0}):
        raise Rejected("unknown_label", f"the mask value {unknown[0]} has no class")
    masks: dict[str, np.ndarray] = {}
    for value, name in class_by_value.items():
        masks[name] = masks.get(name, np.zeros(values.shape, bool)) | (values == value)
    return masks


def instance_numbers(values: np.ndarray) -> np.ndarray:
    """Return a mask of instance numbers as uint16 (H, W). Raises Rejected for other values than 0, 1, …, 65,535."""
    is_number = np.isfinite(values) & (values >= 0) & (values <= MOST_INSTANCES) & (values == np.floor(values))
    if not is_number.all():
        raise Rejected("unknown_label", f"the value {values[~is_number][0]} is not an instance number")
    return values.astype(np.uint16)


def read_class_masks(path: Path, shape: tuple[int, int], label: str, options: Mapping) -> dict[str, np.ndarray]:
    """Return {class: mask} of a file, for an image of this ``shape``. ``options``: settings of the source. Without
    ``mask_values`` in them, all foreground is of the class ``label``. Raises Rejected if the mask cannot be used."""
    values = match_image_size(read_mask(path), shape, options["resize_masks"])
    if options["mask_values"]:
        return masks_by_value(values, options["mask_values"])
    return {label: binary_mask(values, options["mask_threshold"], options["most_foreground"])}


def refuse_uniform(masks: Mapping[str, np.ndarray]) -> None:
    """Raise Rejected if all masks are empty, or if one covers the whole image."""
    if not any(mask.any() for mask in masks.values()):
        raise Rejected("empty_mask")
    if any(mask.all() for mask in masks.values()):
        raise Rejected("full_mask")


def is_dicom(path: Path) -> bool:
    """Return whether a file exists and is DICOM, by its first bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return files.detect_file_kind(file.read(files.HEAD_BYTES)) == "dicom"


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn an error of a decoder into Rejected, unless the machine caused it, for example by a lack of memory."""
    try:
        with files.silence_output():
            yield
    except Rejected:
        raise
    except Exception as error:  # decoders raise many kinds of errors
        if out_of_memory(error) or broken_part(error) or getattr(error, "errno", None) in MACHINE_ERRORS:
            raise
        raise Rejected("undecodable", files.describe_error(error)) from None


def read_dicom_values(path: Path) -> np.ndarray:
    """Return the values of a DICOM mask, (H, W) or (H, W, 3). They are inverted if low stored values stand for white.
    Raises Rejected if the file cannot be used."""
    with _decoding():
        dataset = files.read_dicom(path)
        frames = int(files.get_number(dataset, "NumberOfFrames") or 1)
        if frames > 1:
            raise Rejected("multi_frame", f"the mask has {frames} frames: give each class its own file")
        if int(dataset.Rows) * int(dataset.Columns) > MAX_PIXELS:
            raise Rejected("undecodable", f"the mask has more than {MAX_PIXELS} pixels")
        values = pixel_array(dataset, index=0)
    if files.get_text(dataset, "PhotometricInterpretation") == "MONOCHROME1":
        values = (1 << int(dataset.BitsStored)) - 1 - values.astype(np.int64)
    return values


def read_image(path: Path) -> np.ndarray:
    """Read an image as uint8 (H, W, 3). In a DICOM radiograph, bones become white and padding becomes 0. If values have
    more than 8 bits, :data:`PERCENTILES` become 0 and 255. Raises Rejected, with the reasons of the stage ``frames``,
    if the file cannot be used, and UserError if DICOM decoders are not installed."""
    if not is_dicom(path):
        values = to_grey8(read_array(path))
        return np.ascontiguousarray(values[..., :3] if values.ndim == 3 else np.repeat(values[..., None], 3, axis=2))
    if missing := list_missing_decoders():
        raise UserError(f"{path.name} is DICOM, and this Python lacks decoders ({', '.join(missing)}): install them")
    with _decoding():
        values = to_grey(decode_file(str(path)), "percentile", list(PERCENTILES))
    return np.repeat(values[..., None], 3, axis=2)

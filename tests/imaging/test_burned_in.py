"""Text that is burned into images: found, blacked out, and what stays."""

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from cxr.dicom.files import Rejected
from cxr.imaging.frames.burned_in import clean_image, find_text, is_private, private_text
from cxr.imaging.frames.decoding import read_image
from dicom_files import dataset, encoded

SIDE = 1024


@pytest.fixture(scope="module")
def chest() -> np.ndarray:
    """A radiograph without text, uint8 (1024, 1024): two dark lungs with ribs, a bright mediastinum, noise."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    grey = 150 + 40 * np.cos((columns - SIDE / 2) / 160)
    for centre in (320, 704):
        lung = ((columns - centre) / 170) ** 2 + ((rows - 520) / 330) ** 2
        grey -= 90 * np.clip(1.2 - lung, 0, 1)
        grey += 18 * (np.sin(rows / 22 + (columns - centre) ** 2 / 30000) > 0.6) * (lung < 1.1)
    grey = cv2.GaussianBlur(grey, (0, 0), 3) + np.random.default_rng(7).normal(0, 3, grey.shape)
    return np.clip(grey, 0, 255).astype(np.uint8)


def burned(
    grey: np.ndarray, text: str, place: tuple[int, int], size: int = 26, fill: int = 255, box: int = -1
) -> np.ndarray:
    """Return a copy of an image with a text at (x, y), on a box of a grey level if ``box`` is one."""
    picture = Image.fromarray(grey)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    if box >= 0:
        left, top, right, bottom = draw.textbbox(place, text, font=font)
        draw.rectangle((left - 6, top - 6, right + 6, bottom + 6), fill=box)
    draw.text(place, text, fill=fill, font=font)
    return np.array(picture)


def cleaned(grey: np.ndarray) -> np.ndarray:
    """Return an image without its text, and check that nothing else changed."""
    result, pieces = clean_image(grey, "black_out")
    changed = result != grey
    assert pieces
    assert not result[changed].any()
    assert changed.mean() < 0.05
    return result


@pytest.mark.parametrize(
    "how",
    [
        {"place": (20, 20)},
        {"place": (600, 980), "size": 18},
        {"place": (30, 500), "size": 40},
        {"place": (350, 940), "fill": 0, "box": 255},
        {"place": (500, 15), "size": 14},
    ],
    ids=["corner", "bottom", "lung", "black", "small"],
)
def test_a_name_is_blacked_out_wherever_it_stands(chest, how):
    grey = burned(chest, "MUELLER, JOERG 05.05.1950", **how)
    assert private_text(grey)
    assert private_text(cleaned(grey)) == []


@pytest.mark.parametrize(
    "turn",
    [lambda grey: np.rot90(grey), lambda grey: np.rot90(grey, 3), lambda grey: grey[:, ::-1]],
    ids=["left", "right", "mirrored"],
)
def test_a_turned_or_mirrored_name_is_blacked_out(chest, turn):
    grey = np.ascontiguousarray(turn(burned(chest, "Kowalczyk Anna 1961", (40, 30), 30)))
    assert private_text(cleaned(grey)) == []


def test_letters_of_the_side_and_words_of_the_position_stay(chest):
    grey = burned(burned(burned(chest, "R", (40, 60), 60), "PORTABLE", (800, 40), 30), "AP SUPINE", (60, 960), 30)
    result, pieces = clean_image(grey, "black_out")
    assert len(find_text(grey)) >= 2
    assert pieces == 0
    assert result is grey


def test_a_marker_stays_beside_a_name(chest):
    grey = burned(burned(chest, "ERECT", (850, 500), 30), "Patel R. 4471123", (20, 20), 24)
    texts = [piece.text for piece in find_text(cleaned(grey))]
    assert any("ERECT" in text for text in texts)
    assert not any("Patel" in text for text in texts)


def test_a_colour_image_is_cleaned_too(chest):
    grey = burned(chest, "HOSPITAL NORTH 20240512", (20, 20))
    colour = np.stack([grey, grey // 2, grey], axis=2)
    assert private_text(cleaned(colour)) == []


def test_the_settings_exclude_or_keep_an_image_with_text(chest):
    grey = burned(chest, "MUELLER JOERG", (20, 20))
    with pytest.raises(Rejected) as rejected:
        clean_image(grey, "exclude")
    assert rejected.value.reason == "burned_in_text"
    assert "1 piece" in rejected.value.detail
    assert clean_image(grey, "keep")[0] is grey


def test_an_image_without_text_is_returned_as_it_is(chest):
    result, pieces = clean_image(chest, "black_out")
    assert pieces == 0
    assert result is chest


@pytest.mark.parametrize(
    ("text", "private"),
    [("L", False), ("PA", False), ("AP ERECT", False), ("PORTABLF", False), ("SUPINE 2", False), ("JB", False),
     ("R 4", False), ("Smith", True), ("05.05.1950", True), ("10:35", True), ("PAT22", True),
     ("PORTABLE ICU 4 MILLER", True), ("", False)],
)  # fmt: skip
def test_which_text_may_identify_a_person(text, private):
    assert is_private(text) == private


@pytest.mark.parametrize("inverted", [False, True])
def test_a_dicom_file_is_cleaned_where_it_is_decoded(chest, tmp_path, inverted):
    grey = burned(chest, "MUELLER JOERG 05.05.1950", (20, 20))
    stored = 255 - grey if inverted else grey
    polarity = "MONOCHROME1" if inverted else "MONOCHROME2"
    made = dataset(stored, BurnedInAnnotation="YES", PhotometricInterpretation=polarity)
    (tmp_path / "a.dcm").write_bytes(encoded(made))
    how = {"window": "minmax", "percentiles": [0.5, 99.5]}
    decoded = read_image(str(tmp_path / "a.dcm"), how | {"burned_in": "black_out"})
    assert private_text(decoded.grey) == []
    assert sorted(decoded.notes) == ["1 piece of burned-in text blacked out", "header says that text is burned in"]
    kept = read_image(str(tmp_path / "a.dcm"), how | {"burned_in": "keep"})
    changed = kept.grey != decoded.grey
    assert 0 < changed.mean() < 0.05
    assert not decoded.grey[changed].any()

"""Figures: the choice of studies, the values in the charts, and valid picture files."""

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from cxr.base.vocabulary import LESIONS, ORGAN_LABELS, ZONE_LABELS, list_failed_conditions
from cxr.plotting import panels
from cxr.plotting.plots import save_png
from cxr.reporting.figures import draw_figures
from cxr.reporting.figures.draw_figures import choose_images, draw_panel


def findings(rows: list[tuple[str, str | None, str | None]]) -> pl.DataFrame:
    schema = {"image_id": pl.String, "target": pl.String, "mask_id": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_every_lesion_with_a_mask_is_shown_before_one_comes_twice():
    rows = [(f"e{i}", "edema", f"m{i}") for i in range(20)] + [("p", "pneumonia", "mp"), ("f", "effusion", "mf")]
    chosen = choose_images([findings(rows)], 4, seed=1)
    names = [name for _, name in chosen]
    assert len(names) == len(set(names)) == 4
    assert {"p", "f"} <= set(names)


def test_the_choice_does_not_depend_on_the_shards():
    rows = [(f"i{i}", LESIONS[i % 7], f"m{i}" if i % 3 else None) for i in range(30)]
    whole = [name for _, name in choose_images([findings(rows)], 4, seed=1)]
    parts = [findings(rows[20:]), findings(rows[:5]), findings(rows[5:20])]
    assert [name for _, name in choose_images(parts, 4, seed=1)] == whole
    for shard, name in choose_images(parts, 4, seed=1):
        assert name in parts[shard]["image_id"].to_list()


def test_fewer_studies_than_asked_for_are_all_shown():
    assert len(choose_images([findings([("a", None, None), ("b", "edema", "m")])], 4, seed=1)) == 2
    assert choose_images([findings([])], 4, seed=1) == []


@pytest.mark.parametrize(
    ("verdict", "names"),
    [(0, []), (1, ["anatomy"]), (0b1010, ["conf", "size"]), (0b110000, ["zero_area", "empty_after_refine"])],
)
def test_verdicts_are_named(verdict, names):
    assert list_failed_conditions(verdict) == names


def story() -> dict:
    blank = np.zeros((512, 512), np.uint8)
    left = np.zeros((512, 512), bool)
    left[100:300, 300:400] = True
    finding = {
        "target": "edema", "entity": "edema", "certainty": "definitive", "reported": ["left lung"], "reason": None,
        "grounded": ["left lung"], "mask_id": "m", "box_verdicts": [0, 2],
    }  # fmt: skip
    silent = finding | {
        "target": None,
        "entity": "nodule",
        "mask_id": None,
        "box_verdicts": None,
        "reason": "no_lesion",
    }
    box = {"x1": 300.0, "y1": 100.0, "x2": 400.0, "y2": 300.0, "confidence": 0.5, "class_name": "ILD"}
    return {
        "title": "study s, image i, split train",
        "image": blank,
        "edited": blank,
        "anomaly": np.where(left, 40, 0).astype(np.uint8),
        "organs": dict.fromkeys(ORGAN_LABELS, left),
        "zones": dict.fromkeys(ZONE_LABELS, left),
        "boxes": [box, box],
        "findings": [finding, silent],
        "masks": {"m": left},
        "pairs": [{"instruction": "Segment the edema in the left lung.", "answer": "[SEG]"}] * 60,
    }


def test_a_panel_has_its_eight_parts_and_says_what_happened():
    figure = draw_panel(**story())
    titles = {axes.get_title() for axes in figure.axes}
    assert {
        "image",
        "edited image, without lesions",
        "organs on the image",
        "zones on the edited image",
        "lesion masks",
    } <= titles
    words = "\n".join(text.get_text() for axes in figure.axes for text in axes.texts)
    assert "ILD 0.50: productive" in words
    assert "ILD 0.50: conf" in words
    assert "nodule" in words
    assert "lines more" in words


def test_the_panel_of_an_image_that_was_not_edited_says_so():
    titles = {axes.get_title() for axes in draw_panel(**story() | {"edited": None}).axes}
    assert {"not edited: no finding asks for a mask", "zones on the image"} <= titles
    assert not any("edited image" in title for title in titles)


def test_the_same_story_gives_the_same_file(tmp_path):
    for name in ("a.png", "b.png"):
        save_png(draw_panel(**story()), tmp_path / name, 40)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"Software" not in (tmp_path / "a.png").read_bytes()  # matplotlib's version


def test_the_distribution_shows_every_count():
    table = pl.DataFrame(
        {
            "split": ["train", "test", "test", "test"], "lesion": ["edema", "edema", "opacity", "total"],
            "basic_positive": [1, 1, 0, 1], "global_positive": [0, 1, 0, 1], "global_negative": [5, 0, 7, 7],
            "basic_positive_paper": [9, 9, 9, 9], "global_negative_paper": [9, 9, 9, 9],
        }
    )  # fmt: skip
    axes = draw_figures.draw_distribution(table).axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert sum(heights) == 15
    assert heights[LESIONS.index("edema")] == 3
    assert heights[7 + LESIONS.index("opacity")] == 7


def test_the_shares_are_of_each_polarity_beside_the_paper():
    rows = [("train", "edema", 3, 10), ("test", "edema", 1, 0), ("train", "effusion", 4, 30), ("train", "total", 7, 40)]
    table = pl.DataFrame(
        {
            "split": [row[0] for row in rows], "lesion": [row[1] for row in rows],
            "basic_positive": [row[2] for row in rows], "basic_positive_paper": [row[3] for row in rows],
            "global_negative": [row[3] for row in rows], "global_negative_paper": [row[2] for row in rows],
        }
    )  # fmt: skip
    positive, negative = draw_figures.draw_shares(table).axes
    edema, effusion = LESIONS.index("edema"), LESIONS.index("effusion")
    widths = [[bar.get_width() for bar in axes.patches] for axes in (positive, negative)]
    assert [widths[0][at] for at in (edema, effusion, 7 + edema, 7 + effusion)] == [50.0, 50.0, 25.0, 75.0]
    assert [widths[1][at] for at in (edema, effusion, 7 + edema, 7 + effusion)] == [25.0, 75.0, 50.0, 50.0]
    assert [sum(part) for part in widths] == [200.0, 200.0]


def test_positive_and_negative_differ_in_brightness():
    # for readers who see no colour, and for print
    def brightness(colour: str) -> float:
        return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))

    assert abs(brightness(panels.POSITIVE) - brightness(panels.NEGATIVE)) > 0.2
    assert len(set(panels.LESION_COLOURS.values())) == len(LESIONS)

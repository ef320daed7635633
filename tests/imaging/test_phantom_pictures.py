"""The embedded cohort: its chests, its lesions and its report texts, one by one."""

import cv2
import numpy as np
import pytest

from cxr.base.vocabulary import ANATOMY_LABELS, HEART, LESIONS, LOBES, SIDES, ZONE_LABELS, kinds_under, zones_of
from cxr.imaging.phantom import plan, prose
from cxr.imaging.phantom.chest import draw_chest
from cxr.imaging.phantom.prose import PLACES, WORDING
from cxr.painting import lesions

LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]


@pytest.fixture(scope="module")
def chest():
    return draw_chest(np.random.default_rng(5), 256)


# --- chests ---------------------------------------------------------------------------------------------------------


def test_a_chest_has_every_mask_and_zones_partition_the_lungs(chest):
    assert chest.image.dtype == np.float32
    assert 0.0 <= chest.image.min() < 0.1 < 0.8 < chest.image.max() <= 1.0
    assert set(chest.masks) == {*ANATOMY_LABELS, "cardiomediastinum"}
    for side in SIDES:
        lung = chest.masks[f"{side} lung"]
        assert np.array_equal(sum(chest.masks[zone].astype(int) for zone in zones_of(side)), lung.astype(int))
        lobes = [chest.masks[lobe] for lobe in LOBES if lobe.endswith(side)]
        assert np.array_equal(np.logical_or.reduce(lobes), lung)
    assert (chest.masks[HEART] <= chest.masks["cardiomediastinum"]).all()


def test_right_is_on_the_left_of_the_picture_and_the_left_lung_goes_behind_the_heart(chest):
    centre = {name: np.nonzero(mask)[1].mean() for name, mask in chest.masks.items()}
    assert centre["right lung"] < chest.midline < centre["left lung"]
    assert centre[HEART] > chest.midline
    behind = (chest.masks["left lung"] & chest.masks["cardiomediastinum"]).sum() / chest.masks[
        "cardiomediastinum"
    ].sum()
    assert 0.14 <= behind <= 0.61


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(512, 640), (600, 480)])
def test_lungs_lie_whole_in_the_picture_whatever_its_shape(seed, shape):
    masks = draw_chest(np.random.default_rng(seed), shape, ap=bool(seed % 2)).masks
    lungs = masks["right lung"] | masks["left lung"]
    assert lungs.shape == shape
    rim = np.concatenate([lungs[0], lungs[-1], lungs[:, 0], lungs[:, -1]])
    assert not rim.any()


@pytest.mark.parametrize("large", [False, True])
def test_cardiothoracic_ratio_is_what_the_masks_say(large):
    for seed in range(8):
        chest = draw_chest(np.random.default_rng(seed), 512, cardiomegaly=large)
        widest = np.ptp(np.nonzero(chest.masks[HEART].any(axis=0))[0]) + 1
        lungs = np.nonzero((chest.masks["right lung"] | chest.masks["left lung"]).any(axis=0))[0]
        assert widest / (np.ptp(lungs) + 1) == pytest.approx(chest.ctr, abs=0.02)
        assert (chest.ctr > 0.54) if large else (chest.ctr <= 0.45)


def test_tissue_has_the_order_of_brightness_of_a_real_film():
    for seed in range(6):
        chest = draw_chest(np.random.default_rng(seed), 512)
        lungs = (chest.masks["right lung"] | chest.masks["left lung"]) & ~chest.masks["cardiomediastinum"]
        below = np.zeros_like(lungs)
        below[np.nonzero(lungs.any(axis=1))[0].max() + 5 :, 200:300] = True
        lung, heart = np.median(chest.image[lungs]), np.median(chest.image[chest.masks[HEART]])
        assert lung + 0.15 < heart
        assert lung + 0.15 < np.median(chest.image[below])
        assert np.median(chest.image[:20, :20]) < lung + 0.1  # air beside the neck


# --- lesions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesion", lesions.PAINTABLE)
def test_painting_brightens_inside_its_mask_and_changes_nothing_far_outside(chest, lesion):
    region = chest.masks["right lung"] | chest.masks["left lung"]
    near = cv2.dilate(region.astype(np.uint8), np.ones((17, 17), np.uint8)) > 0
    for seed in range(8):
        new, mask = lesions.paint(chest.image, lesion, region, np.random.default_rng(seed), 1.0, midline=chest.midline)
        assert new.dtype == np.float32
        assert mask.dtype == bool
        assert mask.any()
        assert (mask <= region).all()
        change = new - chest.image
        assert (change >= -1e-6).all()
        assert np.abs(change[~near]).max() == 0
        assert change[mask].mean() > 2 * change[region & ~mask].mean()
        assert change[mask].mean() > 0.02
        assert new.max() <= 1.0


def test_painting_is_a_function_of_its_generator_and_leaves_its_input_alone(chest):
    before = chest.image.copy()
    first, again, other = (
        lesions.paint(chest.image, "opacity", chest.masks["left lung"], np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])
    assert np.array_equal(chest.image, before)


def test_strength_makes_a_lesion_denser(chest):
    change = [
        (
            lesions.paint(chest.image, "consolidation", chest.masks["left lung"], np.random.default_rng(3), s)[0]
            - chest.image
        ).sum()
        for s in (0.4, 0.8, 1.2)
    ]
    assert 0 < change[0] < change[1] < change[2]


def test_an_effusion_fills_from_below_and_climbs_at_the_side(chest):
    for seed in range(10):
        _, mask = lesions.paint(chest.image, "effusion", chest.masks["right lung"], np.random.default_rng(seed))
        rows = np.nonzero(mask.any(axis=1))[0]
        assert rows.max() >= np.nonzero(chest.masks["right lung"].any(axis=1))[0].max() - 4
        columns = np.nonzero(mask.any(axis=0))[0]
        lateral = columns[: max(3, len(columns) // 4)]
        tops = [np.argmax(mask[:, column]) for column in lateral]
        assert np.mean(tops) <= np.mean([np.argmax(mask[:, column]) for column in columns]) + 1


def test_edema_is_on_both_sides_and_others_on_one(chest):
    both = chest.masks["right lung"] | chest.masks["left lung"]
    for seed in range(5):
        _, edema = lesions.paint(chest.image, "edema", both, np.random.default_rng(seed), midline=chest.midline)
        assert all((edema & chest.masks[f"{side} lung"]).any() for side in SIDES)
        _, focal = lesions.paint(chest.image, "opacity", both, np.random.default_rng(seed), midline=chest.midline)
        assert sum((focal & chest.masks[f"{side} lung"]).any() for side in SIDES) == 1


def test_an_empty_region_is_left_alone_and_an_unknown_lesion_refused(chest):
    empty = np.zeros_like(chest.masks[HEART])
    new, mask = lesions.paint(chest.image, "opacity", empty, np.random.default_rng(0))
    assert np.array_equal(new, chest.image)
    assert not mask.any()
    with pytest.raises(ValueError, match="cardiomegaly"):
        lesions.paint(chest.image, "cardiomegaly", empty, np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(37, 61), (8, 8), (300, 180)])
def test_painting_takes_any_shape_and_tiny_regions(shape):
    region = np.zeros(shape, bool)
    region[2:-2, 2:-2] = True
    for lesion in lesions.PAINTABLE:
        new, mask = lesions.paint(np.full(shape, 0.3, np.float32), lesion, region, np.random.default_rng(1))
        assert new.shape == mask.shape == shape
        assert np.isfinite(new).all()


# --- reports --------------------------------------------------------------------------------------------------------


def test_places_name_only_zone_labels():
    for place in PLACES.values():
        assert set(place["labels"]) <= set(ZONE_LABELS)
        assert place["adjectives"]
        assert place["nouns"]
    used = {place for recipe in plan.RECIPES for _, places in recipe for place in places}
    assert used <= PLACES.keys()


def test_every_template_can_be_filled_and_says_its_side():
    rng = np.random.default_rng(0)
    for target in (*LESIONS, "nodule", "scar"):
        for place in PLACES if target not in ("cardiomegaly", "edema") else ("heart",):
            if target == "effusion" and place not in ("right base", "left base", "both bases"):
                continue
            for hedge in ("definite", "strong", "weak"):
                for linked in {False, target in ("pneumonia", "atelectasis", "edema")}:
                    text = prose.describe(prose.Finding(target, place, hedge, linked), rng)
                    assert "{" not in text
                    assert text[0].isupper()
                    assert text.endswith(".")


def test_denials_never_contradict_the_findings():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        targets = {LESIONS[i] for i in rng.choice(7, int(rng.integers(0, 4)), replace=False)}
        denied = prose.deniable(targets, rng)
        assert not targets & set(denied)
        for lesion in denied:
            under = set(kinds_under(lesion)) & targets
            assert under <= ({"atelectasis", "edema"} if lesion == "consolidation" else set())


@pytest.mark.parametrize("layout", prose.LAYOUTS)
def test_the_section_that_counts_is_the_one_that_is_promised(layout):
    headers = {"findings": "\n FINDINGS: ", "impression": "\n IMPRESSION: "}
    for seed in range(20):
        finding = prose.Finding("pneumonia", "left lower lobe", "strong", linked=True)
        report = prose.write_report([finding], np.random.default_rng(seed), layout=layout, devices=1)
        assert report.section == layout
        for name, header in headers.items():
            expected = {"findings": ("findings", "impression"), "impression": ("impression",), "last_paragraph": ()}
            assert (header in report.text) == (name in expected[layout])
        start = report.text.index(headers[layout]) if layout in headers else report.text.rindex("\n \n")
        body = " ".join(report.text[start:].split())
        assert report.findings[0]["sentence"] in body
        assert report.findings[0]["entity"] == "opacity"
        assert report.findings[0]["target"] == "pneumonia"
        assert report.findings[0]["certainty"] == "tentative"
        assert all(any(term in body.lower() for term in WORDING["negatable"][lesion]) for lesion in report.negatives)
        assert all(line.startswith(" ") for line in report.text.splitlines())


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="addendum"):
        prose.write_report([], np.random.default_rng(0), layout="addendum")

"""Editing: soft masks against dense formulas; what an edit keeps, measures and refuses; which jobs are whose."""

import numpy as np
import polars as pl
import pytest

from cxr.semisyn.editing.edit_images import EditingOptions, EditRefused, evaluate_edit, jobs_of, soft_mask
from cxr.semisyn.editing.engine import EditedImage, Job
from cxr.semisyn.editing.settings import EditingConfig, EditingSettings

SHAPE = (512, 512)
BOX = np.array([[100.0, 200.0, 180.0, 260.0]])
MAX_LEAK = 0.5


def config(**changes: object) -> dict:
    return EditingConfig(**changes).as_dict()


def test_a_mask_without_blur_holds_the_pixels_whose_centres_lie_in_the_box():
    found = soft_mask(np.array([[100.5, 200.4, 180.6, 260.0]]), SHAPE, blur="none")
    # centres 100.5 (on the edge: in) to 179.5 and 180.5; rows 200.5 to 259.5
    assert found.sum() == 81 * 60
    assert found[200, 100] == found[259, 180] == 1
    assert found[260, 150] == found[230, 181] == 0


def test_a_gaussian_mask_is_the_dense_convolution_of_the_box():
    found = soft_mask(BOX, SHAPE, blur="gauss_r2")
    wide, tall = 40 / 2, 30 / 2
    inside = np.zeros(SHAPE)
    inside[200:260, 100:180] = 1

    def kernel(sigma: float) -> np.ndarray:
        at = np.arange(-int(np.ceil(3 * sigma)), int(np.ceil(3 * sigma)) + 1)
        bell = np.exp(-(at**2) / (2 * sigma**2))
        return bell / bell.sum()

    dense = np.apply_along_axis(lambda row: np.convolve(row, kernel(wide), "same"), 1, inside)
    dense = np.apply_along_axis(lambda column: np.convolve(column, kernel(tall), "same"), 0, dense)
    np.testing.assert_allclose(found, dense / dense.max(), atol=2e-6)
    assert found.max() == 1


@pytest.mark.parametrize("beta", [4.0, 8.0])
def test_a_generalised_gaussian_is_its_formula(beta):
    found = soft_mask(BOX, SHAPE, blur=f"ggauss_b{beta:.0f}")
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5
    across = np.exp(-((np.abs(x - 140) / (np.sqrt(2) * 40)) ** beta))
    along = np.exp(-((np.abs(y - 230) / (np.sqrt(2) * 30)) ** beta))
    np.testing.assert_allclose(found, (across / across.max()) * (along / along.max()), atol=1e-6)
    # at the side of the box, a distance of one deviation, it has fallen to exp(-2 ** (-beta / 2))
    assert found[230, 180] == pytest.approx(np.exp(-((40.5 / (np.sqrt(2) * 40)) ** beta)), abs=1e-3)


def test_masks_of_two_boxes_are_joined_by_the_larger():
    boxes = np.array([[100.0, 100, 160, 160], [120.0, 120, 300, 300]])
    parts = [soft_mask(box[None], SHAPE, blur="gauss_r1") for box in boxes]
    np.testing.assert_array_equal(soft_mask(boxes, SHAPE, blur="gauss_r1"), np.maximum(*parts))


@pytest.fixture
def chest() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    source = np.full(SHAPE, 80, np.uint8)
    organs = {name: np.zeros(SHAPE, bool) for name in ("right lung", "left lung", "heart")}
    organs["right lung"][120:400, 80:220] = True
    organs["left lung"][120:400, 300:440] = True
    organs["heart"][280:400, 210:330] = True
    return source, organs


def job(**changes: object) -> Job:
    told = {"job_id": "opacity-000001", "finding": "opacity", "prompt": "Opacity.", "boxes": BOX, "sides": ("right",)}
    told |= {"ratio": None, "seed": 1, "config": config()} | changes
    mask = soft_mask(told["boxes"], SHAPE, blur="none")
    return Job(**told, mask=mask)


def brighter(source: np.ndarray, by: int, rows: slice, columns: slice) -> np.ndarray:
    image = source.astype(np.float32)
    image[rows, columns] += by
    return image


def test_outside_the_mask_the_source_stays(chest):
    source, organs = chest
    made = EditedImage(brighter(source, 30, slice(190, 270), slice(90, 190)))
    done = evaluate_edit(source, organs, job(), made, MAX_LEAK)
    changed = done.image != source
    assert changed.sum() == 80 * 60
    assert (done.image[200:260, 100:180] == 110).all()
    assert {row["kind"]: [row[name] for name in ("x1", "y1", "x2", "y2")] for row in done.boxes} == {
        "conditioning": BOX[0].tolist(), "visible": BOX[0].tolist(),
    }  # fmt: skip
    told = done.boxes[0]
    assert (told["change_inside"], told["change_outside_max"], told["leak"], told["area"]) == (30, 0, 0, 80 * 60)


def test_without_compositing_a_leak_is_measured_and_refused(chest):
    source, organs = chest
    made = EditedImage(brighter(source, 30, slice(190, 270), slice(90, 190)))
    free = job(config=config(composite="none"))
    done = evaluate_edit(source, organs, free, made, MAX_LEAK)
    assert done.boxes[0]["leak"] == pytest.approx(1 - 80 * 60 / (100 * 80))
    assert done.boxes[0]["change_outside_max"] == 30
    assert (done.lesion == (free.mask > 0)).all()
    with pytest.raises(EditRefused) as caught:
        evaluate_edit(source, organs, free, made, max_leak=0.3)
    assert caught.value.reason == "leaked"
    # where the mask is dropped before the end, a change outside is what was asked for
    dropped = job(config=config(engine="radedit", extent=0.9))
    assert evaluate_edit(source, organs, dropped, made, max_leak=0.3).image[191, 91] == 110


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (lambda source: brighter(source, 3, slice(200, 260), slice(100, 180)), "nothing_changed"),
        (lambda source: brighter(source, 30, slice(200, 205), slice(100, 109)), "nothing_changed"),
        (lambda source: np.where(source > 0, np.nan, 0), "bad_picture"),
        (lambda source: source[:100], "bad_picture"),
    ],
)
def test_what_is_no_edit_is_refused_with_its_reason(chest, picture, reason):
    source, organs = chest
    with pytest.raises(EditRefused) as caught:
        evaluate_edit(source, organs, job(), EditedImage(picture(source)), MAX_LEAK)
    assert caught.value.reason == reason


def test_the_visible_box_of_each_lung_is_that_of_its_lesion(chest):
    source, organs = chest
    boxes = np.array([[100.0, 200, 180, 260], [320.0, 200, 400, 260]])
    lesion = np.zeros(SHAPE, bool)
    lesion[210:250, 110:170] = True
    lesion[205:255, 330:390] = True
    made = EditedImage(np.where(lesion, 120.0, source), lesion=lesion)
    done = evaluate_edit(source, organs, job(boxes=boxes, sides=("right", "left")), made, MAX_LEAK)
    visible = [[row[name] for name in ("x1", "y1", "x2", "y2")] for row in done.boxes if row["kind"] == "visible"]
    assert visible == [[110, 210, 170, 250], [330, 205, 390, 255]]


PLAN = pl.DataFrame(
    [
        ("edema-000000", "edema", 0, "i1", "00", "Pulmonary edema.", "Edema", True),
        ("edema-000001", "edema", 1, "i2", "00", "Edema.", "Edema", False),
        ("opacity-000000", "opacity", 0, "i1", "00", "Left opacity.", "Lung Opacity", True),
        ("opacity-000001", "opacity", 1, "i3", "01", "Left opacity.", "Lung Opacity", True),
        ("opacity-000002", "opacity", 2, "i1", "00", "Left opacity.", "Lung Opacity", True),
    ],
    schema=["job_id", "finding", "index", "image_id", "shard", "prompt", "class_prompt", "trial"],
    orient="row",
)
PLACED = pl.DataFrame(
    [
        ("edema-000000", "right", 1.0, 2.0, 3.0, 4.0, None),
        ("edema-000000", "left", 5.0, 6.0, 7.0, 8.0, None),
        ("edema-000001", "right", 1.0, 2.0, 3.0, 4.0, None),
        ("opacity-000000", "left", 5.0, 6.0, 7.0, 8.0, None),
        ("opacity-000001", "left", 5.0, 6.0, 7.0, 8.0, None),
    ],
    schema={"job_id": pl.String, "side": pl.String, "x1": pl.Float64, "y1": pl.Float64, "x2": pl.Float64,
            "y2": pl.Float64, "ctr_to": pl.Float64},
    orient="row",
)  # fmt: skip


def options(**changes: object) -> EditingOptions:
    configs = {"lite": config(), "label": config(prompt="label"), "radedit": config(engine="radedit")}
    told = {"configs": configs, "choice": {"edema": "label", "opacity": "lite"}, "max_leak": 0.5, "engine_settings": {}}
    return EditingOptions(**(told | {"engine": "lite", "seed": 1, "findings": ["edema", "opacity"]} | changes))


def test_a_configuration_edits_the_placed_trial_jobs_and_chosen_all():
    found = jobs_of(PLAN, PLACED, "00", "lite", options())
    images = {"edema-000000": "i1", "opacity-000000": "i1", "opacity-000001": "i3"}
    assert {name: image for name, (image, _) in found.items()} == images  # of all shards
    edema = found["edema-000000"][1]
    assert edema.sides == ("right", "left")
    assert edema.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    chosen = jobs_of(PLAN, PLACED, "00", "chosen", options())
    assert list(chosen) == ["edema-000000", "edema-000001", "opacity-000000"]
    assert chosen["edema-000001"][1].prompt == "Edema"
    assert chosen["opacity-000000"][1].prompt == "Left opacity."
    assert jobs_of(PLAN, PLACED, "00", "chosen", options(engine="radedit")) == {}
    mixed = options(engine="radedit", choice={"edema": "radedit", "opacity": "lite"})
    assert list(jobs_of(PLAN, PLACED, "00", "chosen", mixed)) == ["edema-000000", "edema-000001"]


def test_parts_share_the_trial_jobs_of_all_shards():
    parts = [list(jobs_of(PLAN, PLACED, f"{part:02d}", "lite", options(parts=2))) for part in range(2)]
    assert parts == [["edema-000000", "opacity-000001"], ["opacity-000000"]]
    alone = [list(jobs_of(PLAN, PLACED, f"{part:02d}", "lite", options(parts=5))) for part in range(5)]
    assert alone == [["edema-000000"], ["opacity-000000"], ["opacity-000001"], [], []]


def test_a_selection_is_read_in_the_job(tmp_path):
    path = tmp_path / "choice.yaml"
    path.write_text("edema: {config: radedit}\nopacity: {config: label}\n", encoding="utf-8")
    found = jobs_of(PLAN, PLACED, "00", "chosen", options(choice="selection"), str(path))
    assert [job.prompt for _, job in found.values()] == ["Lung Opacity"]


def test_a_job_has_the_same_seed_in_every_configuration():
    seeds = [jobs_of(PLAN, PLACED, "00", name, options())["edema-000000"][1].seed for name in ("lite", "chosen")]
    assert seeds[0] == seeds[1]
    assert len({job.seed for _, job in jobs_of(PLAN, PLACED, "00", "chosen", options()).values()}) == 3


def test_a_choice_that_is_no_configuration_is_refused():
    with pytest.raises(ValueError, match=r"choice\.edema is 'nosuch', but configs has lite, "):
        EditingSettings(choice={"edema": "nosuch"})
    with pytest.raises(ValueError, match="configs names 'chosen', which is reserved"):
        EditingSettings(configs={"chosen": {}})

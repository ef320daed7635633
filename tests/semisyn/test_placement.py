"""Boxes in lungs: exact inequalities, mirrored chests, scale, and jobs that do not depend on one another."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS, SIDES
from cxr.semisyn.findings.boxes import Chests, Places, draw_boxes, draw_hearts, overshoot_limits
from cxr.semisyn.findings.catalogue import choose_sides, parse_prompt, read_catalogue, zone_bounds
from cxr.semisyn.placement.plan_jobs import BOXES, PLAN, PlanOptions, plan_jobs, run_plan, run_shard
from nodules import NODULE, written

CATALOGUE = read_catalogue()
IN_LUNGS = [name for name, one in CATALOGUE.findings.items() if one.prior.placement == "lung"]
LIMITS = {"bounds": "repo", "min_mass": 1e-9, "heart_exclusion": True}
OPTIONS = {"bounds": "repo", "seed": 2026}
PLAN_OPTIONS = PlanOptions(10, "auto", 6, 10, 0.05, 3, list(FINDINGS), 2026)
WHOLE_FRAME = np.array([0.0, 0.0, 512.0, 512.0])


@cache
def chests(count: int = 120) -> dict[str, np.ndarray]:
    """Right and left lungs, hearts and pictures (count, 4) of chests of many sizes, some near the picture's edge."""
    draw = np.random.default_rng(4)
    edge = 10 + 70 * draw.random((count, 2))
    right = np.stack(
        [edge[:, 0], 60 + 40 * draw.random(count), 200 + 40 * draw.random(count), 380 + 110 * draw.random(count)], 1
    )
    left = np.stack(
        [280 + 30 * draw.random(count), 55 + 40 * draw.random(count), 512 - edge[:, 1], 380 + 120 * draw.random(count)],
        1,
    )
    heart = np.stack(
        [
            190 + 30 * draw.random(count),
            260 + 30 * draw.random(count),
            330 + 50 * draw.random(count),
            400 + 60 * draw.random(count),
        ],
        1,
    )
    pictures = np.tile(WHOLE_FRAME, (count, 1))
    pictures[::5] = [5.0, 20.0, 507.0, 500.0]
    return {"right": right, "left": left, "heart": heart, "picture": pictures}


def places_of(name: str, prompt: str, coin: float = 0.2) -> Places:
    """The places of a prompt's boxes in all chests: one row for each chest and lung."""
    of = chests()
    side, zone = parse_prompt(prompt, CATALOGUE.parser)
    parts = []
    for one in choose_sides(side, "both" if name == "edema" else "one", coin):
        count = len(of["right"])
        zones = np.tile(zone_bounds(zone, one, CATALOGUE)[1], (count, 1))
        parts.append(Places(of[one], of["picture"], of["heart"], np.full(count, one == "left"), zones))
    fields = ("lungs", "pictures", "hearts", "left", "zones")
    return Places(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def uniforms_of(places: Places, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((len(places.left), 6, 4))


CASES = [(name, prompt) for name in IN_LUNGS for prompt in CATALOGUE.findings[name].prompts]


@pytest.mark.parametrize("bounds", ["repo", "strict"])
@pytest.mark.parametrize(("name", "prompt"), CASES, ids=lambda value: value[:40])
def test_every_box_satisfies_its_inequalities_exactly(name, prompt, bounds):
    prior, places = CATALOGUE.findings[name].prior, places_of(name, prompt)
    drawn = draw_boxes(prior, places, uniforms_of(places), **LIMITS | {"bounds": bounds})
    placed = np.flatnonzero(drawn.tries)
    assert len(placed) > 0.5 * len(places.left)
    F = Fraction
    for row in placed[::7]:
        cx, cy, w, h = map(F, drawn.percent[row].tolist())
        lung, picture, zone = (list(map(F, box[row].tolist())) for box in (places.lungs, places.pictures, places.zones))
        x_free, x_far = lung[0] - picture[0], picture[2] - lung[2]
        free = [x_far, lung[1] - picture[1], x_free, picture[3] - lung[3]] if places.left[row] else [
            x_free, lung[1] - picture[1], x_far, picture[3] - lung[3],
        ]  # fmt: skip
        size = [lung[2] - lung[0], lung[3] - lung[1]] * 2
        table = list(map(F, prior.overshoot))
        m = [F(0)] * 4 if bounds == "strict" else [
            max(-100 * max(space, F(0)) / length, limit) for space, length, limit in zip(free, size, table, strict=True)
        ]  # fmt: skip
        near = F(1, 10**9) if name == "effusion" else F(0)  # its width is no draw, and its ends are sums of floats
        assert zone[0] <= cx <= zone[2]
        assert zone[1] <= cy <= zone[3]
        assert w >= F(prior.minimum[0])
        assert h >= F(prior.minimum[1])
        assert m[0] - near <= cx - w / 2
        assert cx + w / 2 <= 100 - m[2] + near
        if prior.covers_bottom:
            assert (cx, w) == (50, 100)
            assert cy + h / 2 >= 100  # covers the lower edge of the lung
        if prior.covers_bottom and bounds == "strict":
            assert cy - h / 2 >= 0
            assert drawn.boxes[row, 3] == places.lungs[row, 3]
        else:
            assert m[1] <= cy - h / 2
            assert cy + h / 2 <= 100 - m[3]
    boxes = drawn.boxes[placed]
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    assert (boxes[:, :2] >= places.pictures[placed, :2]).all()
    assert (boxes[:, 2:] <= places.pictures[placed, 2:]).all()
    assert (drawn.mass[placed] >= 1e-9).all()
    assert (drawn.mass[placed] <= 1 + 1e-9).all()
    heart = places.hearts[placed]
    within = (boxes[:, :2] >= heart[:, :2]).all(1) & (boxes[:, 2:] <= heart[:, 2:]).all(1)
    assert not (within & places.left[placed]).any()


def mirrored(boxes: np.ndarray, width: float = 512.0) -> np.ndarray:
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


@pytest.mark.parametrize("bounds", ["repo", "strict"])
@pytest.mark.parametrize(("name", "prompt"), CASES, ids=lambda value: value[:40])
def test_placement_on_a_mirrored_chest_is_the_mirrored_placement(name, prompt, bounds):
    prior, places = CATALOGUE.findings[name].prior, places_of(name, prompt)
    limits = LIMITS | {"bounds": bounds, "heart_exclusion": False}  # the heart is asked about on the left alone
    other = Places(mirrored(places.lungs), mirrored(places.pictures), places.hearts, ~places.left, places.zones)
    first, second = (draw_boxes(prior, one, uniforms_of(places), **limits) for one in (places, other))
    assert np.array_equal(first.tries, second.tries)
    assert np.allclose(first.percent, second.percent, atol=1e-6, equal_nan=True)
    assert np.allclose(mirrored(first.boxes), second.boxes, atol=1e-6, equal_nan=True)


def test_boxes_scale_with_the_frame():
    for name, prompt in CASES[::6]:
        places = places_of(name, prompt)
        larger = replace(places, lungs=2 * places.lungs, pictures=2 * places.pictures, hearts=2 * places.hearts)
        one, two = (
            draw_boxes(CATALOGUE.findings[name].prior, each, uniforms_of(places), **LIMITS) for each in (places, larger)
        )
        assert np.array_equal(one.percent, two.percent, equal_nan=True)
        assert np.array_equal(2 * one.boxes, two.boxes, equal_nan=True)


def test_the_free_space_of_the_left_lung_lies_on_its_lateral_side():
    prior = CATALOGUE.findings["opacity"].prior  # lateral −16.276, top −7.3329, medial −20.1867, bottom −9.9656 %
    lung = np.array([[300.0, 100.0, 500.0, 300.0]])
    places = Places(lung, WHOLE_FRAME[None], np.zeros((1, 4)), np.array([True]), np.array([[0.0, 0.0, 100.0, 100.0]]))
    # lateral: (512 − 500) / 200 = 6 %, less than the table allows
    assert overshoot_limits(prior, places, "repo").tolist() == [[-6.0, -7.3329, -20.1867, -9.9656]]
    right = replace(places, left=np.array([False]))
    assert overshoot_limits(prior, right, "repo").tolist() == [[-16.2760, -7.3329, -6.0, -9.9656]]
    assert overshoot_limits(prior, right, "strict").tolist() == [[0.0] * 4]


def test_no_finding_fails_with_the_authors_overshoot_and_effusion_is_cut_when_strict():
    for name, prompt in CASES:
        places = places_of(name, prompt)
        drawn = draw_boxes(CATALOGUE.findings[name].prior, places, uniforms_of(places), **LIMITS)
        assert (drawn.tries > 0).mean() > 0.999, (name, prompt)
    places = places_of("effusion", "Right effusion.")
    strict = draw_boxes(
        CATALOGUE.findings["effusion"].prior, places, uniforms_of(places), **LIMITS | {"bounds": "strict"}
    )
    assert (strict.tries > 0).mean() > 0.9


def test_a_region_with_too_little_mass_is_no_room_after_all_tries():
    prior, places = CATALOGUE.findings["opacity"].prior, places_of("opacity", "Right lower lobe opacity.")
    drawn = draw_boxes(prior, places, uniforms_of(places), **LIMITS | {"min_mass": 0.9999})
    assert not drawn.tries.any()
    assert np.isnan(drawn.boxes).all()


def test_a_box_wholly_inside_the_heart_is_refused_in_the_left_lung_alone():
    prior, places = CATALOGUE.findings["opacity"].prior, places_of("opacity", "Left lower lobe opacity.")
    all_heart = replace(places, hearts=np.tile(WHOLE_FRAME, (len(places.left), 1)))
    uniforms = uniforms_of(places)
    assert not draw_boxes(prior, all_heart, uniforms, **LIMITS).tries.any()
    assert draw_boxes(prior, all_heart, uniforms, **LIMITS | {"heart_exclusion": False}).tries.all()
    assert draw_boxes(prior, replace(all_heart, left=~places.left), uniforms, **LIMITS).tries.all()


@pytest.mark.parametrize(
    "lung",
    [
        [np.nan] * 4,
        [100.0, 100.0, 100.0, 300.0],
        [200.0, 100.0, 100.0, 300.0],  # inverted
        [100.0, 300.0, 200.0, 300.0],
        [600.0, 100.0, 700.0, 300.0],  # beside the picture
        [np.inf, 0.0, np.inf, 10.0],
    ],
)
def test_a_lung_that_is_none_has_no_room(lung):
    for name in IN_LUNGS:
        heart, zone = np.array([[200.0, 200.0, 300.0, 300.0]]), np.array([[0.0, 0.0, 100.0, 100.0]])
        places = Places(np.array([lung]), WHOLE_FRAME[None], heart, np.array([False]), zone)
        assert not draw_boxes(CATALOGUE.findings[name].prior, places, np.full((1, 6, 4), 0.5), **LIMITS).tries.any()


def hearts_of(count: int = 120, **changes) -> tuple[Chests, np.ndarray]:
    of = chests()
    parts = {"right": of["right"], "left": of["left"], "hearts": of["heart"], "pictures": of["picture"]} | changes
    return Chests(**{name: part[:count] for name, part in parts.items()}), np.random.default_rng(8).random((count, 6))


def test_an_enlarged_heart_keeps_centre_and_aspect_and_is_larger_than_the_present_one():
    prior = CATALOGUE.findings["cardiomegaly"].prior
    of, uniforms = hearts_of()
    of = replace(of, pictures=np.tile([-1e4, -1e4, 1e4, 1e4], (120, 1)))
    drawn = draw_hearts(prior, of, uniforms, step=0.03, min_mass=1e-9)
    placed = drawn.tries > 0
    assert placed.mean() > 0.9
    boxes, old = drawn.boxes[placed], of.hearts[placed]
    thorax = (of.left[:, 2] - of.right[:, 0])[placed]
    assert drawn.ratios[placed, 0] == pytest.approx((old[:, 2] - old[:, 0]) / thorax)
    assert drawn.ratios[placed, 1] == pytest.approx((boxes[:, 2] - boxes[:, 0]) / thorax)
    assert (drawn.ratios[placed, 1] >= np.maximum(drawn.ratios[placed, 0] + 0.03, 0.490215) - 1e-12).all()
    assert (drawn.ratios[placed, 1] <= 1).all()
    assert (boxes + boxes[:, [2, 3, 0, 1]]) == pytest.approx(old + old[:, [2, 3, 0, 1]])
    aspect = [(box[:, 3] - box[:, 1]) / (box[:, 2] - box[:, 0]) for box in (boxes, old)]
    assert aspect[0] == pytest.approx(aspect[1])
    assert (boxes[:, 0] >= of.right[placed, 0]).all()
    assert (boxes[:, 2] <= of.left[placed, 2]).all()


def test_a_heart_without_room_is_no_room():
    prior = CATALOGUE.findings["cardiomegaly"].prior
    of, uniforms = hearts_of(20)
    wide = of.hearts.copy()
    wide[:, 0], wide[:, 2] = of.right[:, 0] - 5, of.left[:, 2] + 5  # wider than the thorax
    # off the middle: its centre on the thorax's outer edge
    aside = of.hearts + (of.left[:, 2:3] - of.hearts[:, 2:3]) * [1.5, 0, 1.5, 0]
    flat = of.hearts.copy()
    flat[:, 2] = flat[:, 0]
    for hearts in (wide, aside, flat, np.full_like(wide, np.nan)):
        assert not draw_hearts(prior, replace(of, hearts=hearts), uniforms, step=0.03, min_mass=1e-9).tries.any()
    swapped = replace(of, right=of.left, left=of.right)
    assert not draw_hearts(prior, swapped, uniforms, step=0.03, min_mass=1e-9).tries.any()


# The plan and the shards


def pool(count: int, shards: int = 1) -> dict[str, str]:
    return {f"i{number:03d}": f"{number % shards:02d}" for number in range(count)}


def test_every_image_is_used_as_often_as_every_other():
    jobs = plan_jobs(pool(7), CATALOGUE, replace(PLAN_OPTIONS, per_finding=30))
    table = pl.DataFrame(jobs, schema=schema(PLAN), orient="row")
    assert len(table) == 7 * 32  # 5 % to spare, rounded up
    uses = table.group_by("finding", "image_id").len()["len"]
    assert set(uses) == {4, 5}
    assert table["job_id"].n_unique() == len(table)
    orders = [table.filter(finding=name)["image_id"].to_list() for name in FINDINGS]
    assert orders[0][:7] != orders[1][:7]  # each finding has an order of its own
    assert orders[0][:7] != orders[0][7:14]  # and each round
    assert table.filter("trial")["index"].to_list() == [0, 1, 2] * 7


def test_a_new_image_or_finding_changes_no_prompt_and_a_smaller_plan_is_the_start_of_a_larger():
    def jobs(images: int, **changes) -> dict:
        return {job[0]: job for job in plan_jobs(pool(images), CATALOGUE, replace(PLAN_OPTIONS, **changes))}

    few, more = jobs(9), jobs(10)
    assert {name: job[5] for name, job in few.items()} == {name: job[5] for name, job in more.items()}
    assert few != more
    large = jobs(9, per_finding=25)
    assert few.items() <= {name: (*job[:7], *few.get(name, job)[7:]) for name, job in large.items()}.items()
    two = jobs(9, findings=["edema", "opacity"])
    assert two.items() <= few.items()


def test_prompts_are_drawn_by_their_weights():
    jobs = plan_jobs(pool(5), CATALOGUE, replace(PLAN_OPTIONS, per_finding=4000, spare=0.0, findings=["edema"]))
    for prompt, weight in CATALOGUE.findings["edema"].prompts.items():
        share = sum(job[5] == prompt for job in jobs) / 4000
        assert share == pytest.approx(weight, abs=4 * (weight / 4000) ** 0.5)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A table of 30 healthy images and the priors, frames for 1, 3 and 7 shards."""
    folder = tmp_path_factory.mktemp("placement")
    of = chests()
    rows = []
    for number in range(30):
        row = {"image_id": f"i{number:03d}", "study_id": f"s{number:03d}", "subject_id": f"p{number}", "split": "train"}
        for organ, key in (("right", "right"), ("left", "left"), ("heart", "heart")):
            row |= dict(zip([f"{organ}_{c}" for c in ("x1", "y1", "x2", "y2")], of[key][number].tolist(), strict=True))
        rows.append(row)
    for shards in (1, 3, 7):
        (folder / str(shards)).mkdir()
        table = pl.DataFrame(rows).with_columns(shard=pl.Series([f"{n % shards:02d}" for n in range(30)]))
        write_table(folder / f"{shards}/healthy.parquet", table)
        for shard in range(shards):
            with ShardWriter(folder / f"{shards}/frames_{shard:02d}.h5") as writer:
                for number in range(shard, 30, shards):
                    scale = 2.0 + number % 3
                    writer.append(
                        f"i{number:03d}",
                        to_original=np.array([[scale, 0.0, 0.0], [0.0, scale, -scale * 16]]),
                        original_shape=np.array([int(480 * scale), int(512 * scale)], np.int32),
                    )
    (folder / "priors.yaml").write_text("lungs: test\n", encoding="utf-8")
    return folder


def run(inputs, folder, shards: int, plan_options=PLAN_OPTIONS, keep=None, findings_file=""):
    """Run the stage; return its boxes and its excluded jobs, of all shards."""
    folder.mkdir(exist_ok=True)
    plan = folder / "plan.parquet"
    healthy = str(inputs / f"{shards}/healthy.parquet")
    run_plan(healthy=healthy, plan=str(plan), options=plan_options, findings_file=findings_file)
    if keep is not None:
        write_table(plan, read_table(plan).filter(pl.col("job_id").is_in(keep)), PLAN)
    for number in range(shards):
        shard = f"{number:02d}"
        run_shard(
            plan=str(plan), healthy=healthy, frames=str(inputs / f"{shards}/frames_{shard}.h5"),
            priors=str(inputs / "priors.yaml"), output=str(folder / f"{shard}.parquet"),
            excluded=str(folder / f"{shard}.excluded.parquet"), shard=shard, **OPTIONS,
            findings_file=findings_file,
        )  # fmt: skip
    names = [f"{number:02d}" for number in range(shards)]
    boxes = pl.concat([read_table(folder / f"{name}.parquet") for name in names])
    gone = pl.concat([read_table(folder / f"{name}.excluded.parquet") for name in names])
    return read_table(plan), boxes, gone


def test_the_same_boxes_for_one_three_and_seven_shards(inputs, tmp_path):
    found = {}
    for shards in (1, 3, 7):
        plan, boxes, gone = run(inputs, tmp_path / str(shards), shards)
        path = tmp_path / f"{shards}.parquet"
        write_table(path, boxes.sort("job_id", "side"), BOXES)
        found[shards] = path.read_bytes(), plan.drop("shard").rows(), gone.sort("image_id").rows()
    assert found[1] == found[3] == found[7]


def test_a_jobs_box_does_not_move_when_other_jobs_vanish(inputs, tmp_path, monkeypatch):
    plan, boxes, _ = run(inputs, tmp_path / "all", 1)
    kept = plan["job_id"].to_list()[::5]
    _, fewer, _ = run(inputs, tmp_path / "few", 1, keep=kept)
    assert fewer.rows() == boxes.filter(pl.col("job_id").is_in(kept)).rows()
    # more tries leave what succeeded as it was
    monkeypatch.setattr("cxr.semisyn.placement.plan_jobs.TRIES", 9)
    _, tried, _ = run(inputs, tmp_path / "tries", 1)
    assert boxes.rows() == tried.filter(pl.col("job_id").is_in(boxes["job_id"].implode())).rows()


def test_every_planned_job_is_placed_or_excluded_with_all_its_boxes(inputs, tmp_path):
    # two images lose a lung: a bilateral job on them is excluded whole
    healthy = read_table(inputs / "1/healthy.parquet")
    gone = pl.col("image_id").is_in(["i003", "i004"])
    broken = healthy.with_columns(left_x2=pl.when(gone).then(pl.col("left_x1")).otherwise(pl.col("left_x2")))
    folder = tmp_path / "broken"
    (folder / "1").mkdir(parents=True)
    write_table(folder / "1/healthy.parquet", broken)
    (folder / "1/frames_00.h5").write_bytes((inputs / "1/frames_00.h5").read_bytes())
    (folder / "priors.yaml").write_text("lungs: test\n", encoding="utf-8")
    plan, boxes, excluded = run(folder, tmp_path / "out", 1, plan_options=replace(PLAN_OPTIONS, per_finding=60))
    assert sorted([*boxes["job_id"].unique(), *excluded["image_id"]]) == sorted(plan["job_id"])
    assert set(excluded["reason"]) == {"no_room"}
    asked = dict(plan.select("job_id", "prompt").iter_rows())
    sides = {job: set(of["side"]) for (job,), of in boxes.group_by("job_id")}
    for job, prompt in asked.items():
        if job in sides and not job.startswith("cardiomegaly"):
            named = parse_prompt(prompt, CATALOGUE.parser)[0]
            if named == "both" or job.startswith("edema"):
                assert sides[job] == set(SIDES)
            else:
                assert len(sides[job]) == 1
                assert named in ("any", *sides[job])
    studies = dict(excluded.select("image_id", "study_id").iter_rows())
    lost = plan.filter(pl.col("image_id").is_in(["i003", "i004"]) & pl.col("prompt").str.contains("(?i)bilateral"))
    assert len(lost) > 2
    assert {studies[job] for job in lost["job_id"]} <= {"s003", "s004"}
    assert not set(lost["job_id"]) & set(boxes["job_id"])


def test_a_picture_that_is_narrow_in_its_frame_bounds_its_boxes(inputs, tmp_path):
    # 480 rows in a frame of 512: 16 are empty at the top and at the bottom
    _, boxes, _ = run(
        inputs, tmp_path / "run", 1, plan_options=replace(PLAN_OPTIONS, per_finding=200, findings=["effusion"])
    )
    assert 495 < boxes["y2"].max() <= 496
    assert boxes["y1"].min() >= 16.0


def test_a_users_finding_is_placed_and_changes_no_other(inputs, tmp_path):
    mine = written(tmp_path, NODULE)
    _, before, _ = run(inputs, tmp_path / "before", 1)
    more = replace(PLAN_OPTIONS, findings=["nodule", *PLAN_OPTIONS.findings])
    plan, boxes, _ = run(inputs, tmp_path / "after", 1, plan_options=more, findings_file=str(mine))
    assert boxes.filter(pl.col("finding") != "nodule").rows() == before.rows()
    nodules = boxes.filter(finding="nodule")
    assert nodules["job_id"].n_unique() == 11
    assert nodules["w"].mean() == pytest.approx(9.3, abs=2)
    assert set(plan.filter(finding="nodule")["prompt"]) == set(NODULE["findings"]["nodule"]["prompts"])


def planned(folder, num_healthy: int, **changes) -> pl.DataFrame:
    """Run the plan's job on a pool of so many images; return its table."""
    rows = {"image_id": [*pool(num_healthy)], "shard": [*pool(num_healthy).values()]}
    write_table(folder / "healthy.parquet", pl.DataFrame(rows, schema=dict.fromkeys(rows, pl.String)))
    run_plan(
        healthy=str(folder / "healthy.parquet"), plan=str(folder / "plan.parquet"),
        options=replace(PLAN_OPTIONS, **changes),
    )  # fmt: skip
    return read_table(folder / "plan.parquet")


def test_a_pool_without_an_image_is_refused(tmp_path):
    refusal = r"^0 X-rays are healthy, too few .*: give more healthy X-rays; .*funnel\.tsv tells which criterion"
    for per_finding in (None, 5):
        with pytest.raises(UserError, match=refusal):
            planned(tmp_path, 0, per_finding=per_finding)


@pytest.mark.parametrize("most_per_image", [1, 2, 3, 7])
@pytest.mark.parametrize("spare", [0.0, 0.05, 0.3])
def test_the_number_of_images_follows_the_pool(tmp_path, most_per_image, spare):
    settings_of_pool = {"per_finding": None, "default_most": 40, "most_per_image": most_per_image, "spare": spare}
    sizes = []
    for num_healthy in (2, 3, 9, 30, 200):
        table = planned(tmp_path, num_healthy, **settings_of_pool)
        asked = table.filter(~pl.col("is_spare")).group_by("finding").len()["len"].unique().item()
        sizes.append(asked)
        uses = table.group_by("finding", "image_id").len()["len"].max()
        assert uses <= most_per_image
        one_more = math.ceil((asked + 1) * (1 + spare))
        assert asked == 40 or math.ceil(one_more / num_healthy) > most_per_image
    assert sizes == sorted(sizes)
    assert sizes[-1] == 40


def test_more_uses_of_an_image_than_allowed_are_refused(tmp_path):
    """A hospital with two healthy X-rays that asks for the paper's 5,000 images of each finding."""
    with pytest.raises(
        UserError, match="per_finding asks for 5000 images of each finding, so each of 2 healthy X-rays "
    ) as caught:
        planned(tmp_path, 2, per_finding=5000, most_per_image=2)
    assert "ask for at most 3" in str(caught.value)
    table = planned(tmp_path, 2, per_finding=3, most_per_image=2)
    assert len(table) == 4 * len(FINDINGS)
    assert table.filter("is_spare")["index"].to_list() == [3] * len(FINDINGS)
    assert len(planned(tmp_path, 2, per_finding=5000, most_per_image=2625, spare=0.05, findings=["edema"])) == 5250


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(IN_LUNGS), st.floats(20, 250), st.floats(20, 400), st.booleans())
def test_any_lung_gives_boxes_in_the_picture_or_none(seed, name, width, height, left):
    lung = np.array([[100.0, 50.0, 100.0 + width, 50.0 + height]])
    places = Places(
        lung,
        WHOLE_FRAME[None],
        np.array([[200.0, 200.0, 300.0, 300.0]]),
        np.array([left]),
        np.array([[0.0, 0, 100, 100]]),
    )
    drawn = draw_boxes(CATALOGUE.findings[name].prior, places, np.random.default_rng(seed).random((1, 6, 4)), **LIMITS)
    if drawn.tries[0]:
        assert (drawn.boxes >= 0).all()
        assert (drawn.boxes <= 512).all()

"""Priors fitted to boxes: samples by hand, fits that give a law's draws back, limits, zones, and the whole stage."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import yaml
from scipy import stats

from annotation_files import write_chest_imagenome, write_ms_cxr
from conftest import every
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.findings.catalogue import CONSTANT, Law, parse_law, read_catalogue
from cxr.semisyn.findings.laws import draw_pair_within, draw_within, scipy_law
from cxr.semisyn.priors.fitting import compare_sides, fit_pair, fit_prior, fit_single, fit_truncated, rss_of
from cxr.semisyn.priors.write_priors import Chest, fit_zones, lung_percent, nearest_lung, run, sample_rows
from cxr.semisyn.references import Reference, finding_by_label

CATALOGUE = read_catalogue()
HOW = {"sizes": "drawn"}
RIGHT, LEFT_LUNG, HEART = (50.0, 100.0, 250.0, 400.0), (300.0, 90.0, 480.0, 390.0), (200.0, 250.0, 372.0, 400.0)
SAME = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
CHEST = Chest(RIGHT, LEFT_LUNG, HEART, SAME, (512, 512), True, "p")
PLACEMENTS = {name: one.prior.placement for name, one in CATALOGUE.findings.items()}
SOURCE = Reference("people", "ms_cxr", "", "{stem}", "", {})


def test_labels_of_the_formats_are_findings():
    known = {kind: finding_by_label(kind, {}) for kind in ("ms_cxr", "nih", "vindr")}
    assert {known["ms_cxr"][name.lower()] for name in FINDINGS.values()} == set(FINDINGS)
    assert "pneumonia" not in known["ms_cxr"]
    assert {"infiltrate": "opacity", "effusion": "effusion", "pneumothorax": "pneumothorax"}.items() <= known[
        "nih"
    ].items()
    assert known["vindr"]["pleural effusion"] == "effusion"
    assert finding_by_label("coco", {"ground_glass": "opacity"})["ground_glass"] == "opacity"
    assert finding_by_label("nih", {}, [*FINDINGS, "nodule"])["nodule"] == "nodule"
    assert "edema" not in finding_by_label("nih", {"Swollen": "edema"}, ["effusion"]).values()


def test_a_box_in_percent_of_its_lung_by_hand():
    # in the right lung (200 x 300 px): centre (110, 220), 40 x 60 px
    assert lung_percent((90, 190, 130, 250), RIGHT, "right") == (30.0, 40.0, 20.0, 20.0)
    # in the left lung (180 x 300 px): centre (426, 210), 54 px from the lateral edge
    assert lung_percent((408, 180, 444, 240), LEFT_LUNG, "left") == pytest.approx((30.0, 40.0, 20.0, 20.0))


def test_the_lung_of_a_box_is_that_with_the_nearest_vertical_edge():
    assert nearest_lung((60, 0, 100, 10), CHEST) == "right"
    assert (
        nearest_lung((240, 0, 290, 10), CHEST) == "right"
    )  # centre 265: 15 px from the right lung, 35 px from the left
    assert nearest_lung((262, 0, 312, 10), CHEST) == "left"


def test_bad_boxes_are_left_out_with_their_reason():
    def one(image="i", label="Edema", box=(90.0, 190.0, 130.0, 250.0), size=None):
        return Annotation(image, label, box, size=size)

    posed = replace(CHEST, posed=False)
    found = [
        one(),
        one("elsewhere"),
        one(box=None),
        one(box=(float("nan"), 1.0, 2.0, 3.0)),
        one(box=(90.0, 190.0, 90.0, 250.0)),
        one(box=(130.0, 190.0, 90.0, 250.0)),
        one(box=(900.0, 190.0, 950.0, 250.0)),
        one(size=(1024, 1024)),
        one(box=(90.0, 0.0, 130.0, 2.0), label="Lung Opacity"),
        one(label="Pneumonia"),
        one(label="Cardiomegaly"),
        one(label="Cardiomegaly"),
        one("ap", label="Cardiomegaly"),
    ]
    rows = sample_rows(found, SOURCE, {"i": CHEST, "ap": posed}, PLACEMENTS)
    reasons = sorted((row[0], row[2], row[-1]) for row in rows)
    assert reasons == sorted(
        [
            ("edema", "i", ""),
            ("edema", "elsewhere", "no organs of its image"),
            ("edema", "i", "no box, or a coordinate is not a number"),
            ("edema", "i", "no box, or a coordinate is not a number"),
            ("edema", "i", "no area"),
            ("edema", "i", "no area"),
            ("edema", "i", "outside the picture"),
            ("edema", "i", "drawn on an image of another size"),
            ("opacity", "i", ""),  # 33 % above the lung
            ("cardiomegaly", "i", ""),
            ("cardiomegaly", "ap", "not PA, or not erect"),
        ]
    )
    assert [row[8] for row in rows if row[0] == "cardiomegaly" and not row[-1]] == [pytest.approx(100 * 172 / 430)]
    low = replace(CHEST, right=(50.0, 100.0, 150.0, 150.0))
    far = sample_rows([one()], SOURCE, {"i": low}, PLACEMENTS)
    assert far[0][-1] == "far outside the lung"


def draws(law: Law, count: int, seed: int) -> np.ndarray:
    uniforms = np.random.default_rng(seed).random((count, 2))
    if law.family == "mvlognormal":
        return draw_pair_within(law, uniforms, np.zeros((count, 2)), np.full((count, 2), np.inf))[0]
    return draw_within(law, uniforms[:, 0], np.full(count, -np.inf), np.full(count, np.inf))[0]


SINGLES = [
    (name, part)
    for name, one in CATALOGUE.findings.items()
    for part, law in one.prior.laws.items()
    if law.family != "mvlognormal" and law.family != CONSTANT
]


@pytest.mark.parametrize(("name", "part"), every(3, SINGLES), ids="-".join)
def test_a_refit_on_5000_draws_gives_the_law_back(name, part):
    law = CATALOGUE.findings[name].prior.laws[part]
    values = draws(law, 5000, 3)
    best = scipy_law(fit_single(values)[0][0])
    x = np.linspace(*scipy_law(law).ppf([0.0005, 0.9995]), 801)
    assert np.abs(best.cdf(x) - scipy_law(law).cdf(x)).max() <= 0.02


@pytest.mark.parametrize(
    ("told", "close"),
    [
        ({"family": "gamma", "a": 2.0, "loc": 5.0, "scale": 3.0}, {"a": 0.25, "loc": 0.3, "scale": 0.4}),
        ({"family": "uniform", "loc": 10.0, "scale": 40.0}, {"loc": 0.1, "scale": 0.1}),
        ({"family": "expon", "loc": 2.0, "scale": 7.0}, {"loc": 0.1, "scale": 0.4}),
        ({"family": "beta", "a": 0.6, "b": 0.7, "loc": 0.0, "scale": 100.0}, {"a": 0.06, "b": 0.06, "scale": 0.5}),
    ],
)
def test_a_family_that_is_unlike_the_others_is_found_with_its_parameters(told, close):
    law = parse_law(told)
    values = scipy_law(law).rvs(5000, random_state=np.random.default_rng(1))
    # those that another family holds as a special case are compared by their parameters in their own family
    own = next(found for found, _ in fit_single(values, [told["family"]]))
    for name, most in close.items():
        assert own.parameters[name] == pytest.approx(law.parameters[name], abs=most), name
    best = fit_single(values)[0][0]
    x = np.linspace(*scipy_law(law).ppf([0.001, 0.999]), 401)
    assert np.abs(scipy_law(best).cdf(x) - scipy_law(law).cdf(x)).max() <= 0.02


def test_the_family_with_the_smaller_rss_is_chosen():
    values = np.random.default_rng(2).normal(50, 10, 5000)
    fits = fit_single(values, ["uniform", "norm", "expon"])
    assert fits[0][0].family == "norm"
    assert [rss for _, rss in fits] == sorted(rss for _, rss in fits)
    heights, edges = np.histogram(values, 50, density=True)
    centres = (edges[:-1] + edges[1:]) / 2
    assert rss_of(stats.norm(50, 10), values) == pytest.approx(
        sum((stats.norm(50, 10).pdf(x) - y) ** 2 for x, y in zip(centres, heights, strict=True))
    )


@pytest.mark.parametrize("name", every(3, [name for name in FINDINGS if name != "effusion"]))
def test_a_prior_refitted_on_its_own_draws_is_the_prior(name):
    prior = CATALOGUE.findings[name].prior
    samples = {}
    for number, (part, law) in enumerate(prior.laws.items()):
        values = draws(law, 5000, 40 + number)
        keys = {"center": ("cx", "cy"), "size": ("w", "h")}.get(part)
        singles = {"center_x": "cx", "center_y": "cy", "width": "w", "height": "h", "ctr": "ctr"}
        samples |= dict(zip(keys, values.T, strict=True)) if keys else {singles[part]: values}
    fitted, fits = fit_prior(prior, samples, **HOW)
    assert fitted.laws.keys() == prior.laws.keys()
    assert fitted.origin == "fit"
    for part, law in prior.laws.items():
        if law.family == "mvlognormal":
            mu, sigma = (np.array(fitted.laws[part].parameters[key]) for key in ("mu", "sigma"))
            assert mu == pytest.approx(np.array(law.parameters["mu"]), abs=0.05)
            assert sigma == pytest.approx(np.array(law.parameters["sigma"]), abs=0.06)
    sizes = [samples[one] for one in ("w", "h") if one in samples] or [samples["ctr"]]
    assert fitted.minimum == tuple(values.min() for values in sizes)
    if "cx" in samples:
        bottom = 100 - (samples["cy"] + samples["h"] / 2)
        assert fitted.overshoot[3] == pytest.approx(min(0, np.percentile(bottom, 2.5)))
        assert max(fitted.overshoot) <= 0
    assert sum(fit.is_chosen for fit in fits) == len(prior.laws)


def test_an_effusions_width_and_centre_stay_constant():
    prior = CATALOGUE.findings["effusion"].prior
    n = 400
    draw = np.random.default_rng(6)
    samples = {"cx": 50 + draw.normal(0, 4, n), "w": 90 + draw.normal(0, 5, n)}
    samples |= {"cy": draws(prior.laws["center_y"], n, 1), "h": draws(prior.laws["height"], n, 2)}
    fitted, _ = fit_prior(prior, samples, **HOW)
    assert fitted.laws["center_x"] == prior.laws["center_x"]
    assert fitted.laws["width"] == prior.laws["width"]
    assert fitted.covers_bottom
    assert fitted.laws["height"] != prior.laws["height"]


def test_numbers_that_depend_on_each_other_make_one_law_and_samples_at_or_below_zero_are_left_out():
    prior = CATALOGUE.findings["opacity"].prior
    draw = np.random.default_rng(9)
    x = draw.normal(40, 12, 500)
    samples = {"cx": x, "cy": x + draw.normal(0, 4, 500), "w": 30 + draw.random(500), "h": 20 + draw.random(500)}
    samples["cx"][:7] = -1.0
    fitted, fits = fit_prior(prior, samples, **HOW)
    assert set(fitted.laws) == {"center", "width", "height"}
    assert next(fit.n for fit in fits if fit.element == "center") == 493


@pytest.mark.slow
def test_sizes_that_the_placement_has_limited_give_their_law_back():
    law = parse_law({"family": "mvlognormal", "mu": [4.1, 3.7], "sigma": [[0.15, 0.1], [0.1, 0.3]]})
    draw = np.random.default_rng(8)
    low, high = np.zeros((5000, 2)), 30 + 70 * draw.random((5000, 2))
    values, _ = draw_pair_within(law, draw.random((5000, 2)), low, high)
    found, plain = fit_truncated(values, low, high), fit_pair(values)
    for key, most in (("mu", 0.06), ("sigma", 0.04)):
        wanted = np.array(law.parameters[key])
        assert np.array(found.parameters[key]) == pytest.approx(wanted, abs=most), key
        assert np.abs(np.array(plain.parameters[key]) - wanted).max() > 2 * most, key


def test_both_laws_of_the_size_are_told_and_one_is_chosen():
    prior = CATALOGUE.findings["opacity"].prior
    draw = np.random.default_rng(9)
    sizes = np.exp(draw.multivariate_normal([3.6, 3.2], [[0.1, 0.06], [0.06, 0.1]], 200))
    samples = {"cx": draw.normal(50, 8, 200), "cy": draw.normal(60, 8, 200), "w": sizes[:, 0], "h": sizes[:, 1]}
    new, fits = fit_prior(prior, samples, **HOW | {"sizes": "placed"})
    of_size = [fit for fit in fits if fit.element == "size"]
    assert [fit.is_chosen for fit in of_size] == [False, True]
    assert new.laws["size"] == of_size[1].law
    assert of_size[0].law == fit_prior(prior, samples, **HOW)[0].laws["size"]


def test_the_symmetry_of_sides_is_reported():
    draw = np.random.default_rng(3)
    values, left = draw.normal(size=400), np.arange(400) % 2 == 0
    (row,) = compare_sides({"cx": values}, left)
    assert row[:3] == ("cx", 200, 200)
    assert row[4] > 0.05
    assert compare_sides({"cx": values + left}, left)[0][4] < 1e-6
    assert compare_sides({"cx": values}, np.zeros(400, bool)) == []


def test_zones_are_percentiles_of_edges_and_lobes_their_unions():
    zones = ("apical zone", "hilar structures", "lower lung zone", "mid lung zone", "upper lung zone", "hemidiaphragm",
             "costophrenic angle")  # fmt: skip
    boxes = {zone: (60.0, 100.0 + 40 * k, 240.0, 160.0 + 40 * k) for k, zone in enumerate(zones)}
    found = [
        Annotation(f"i{n}.dcm", f"right {zone}", tuple(value + n for value in box))
        for n in range(21)
        for zone, box in boxes.items()
    ]
    chests = {f"i{n}": replace(CHEST, patient=f"p{n}") for n in range(21)}
    fitted = fit_zones(found, chests)
    assert {side for side, _ in fitted} == {"right"}
    assert len(fitted) == 9
    # the 5th percentile of 0 … 20 is 1, the 95th 19: x from (60 + 1 − 50) / 2 to (240 + 19 − 50) / 2 %
    assert fitted["right", "apical zone"] == (pytest.approx((5.5, 100 / 300, 104.5, 79 / 3)), 21)
    base = fitted["right", "hemidiaphragm and costophrenic angle"][0]
    assert base == pytest.approx((5.5, (301 - 100) / 3, 104.5, (419 - 100) / 3))
    assert fit_zones(found, dict.fromkeys(chests, CHEST)) == {}  # one patient


# The stage


OPTIONS = {"reference": "people", "format": "ms_cxr", "image_id": "{stem}", "classes": {}, "organ_engine": "lite",
           "findings": list(FINDINGS)}  # fmt: skip
OUT = {"priors": "priors.yaml", "samples": "samples.parquet", "fits": "fits.tsv", "zones": "zones.tsv",
       "symmetry_table": "symmetry.tsv"}  # fmt: skip


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A reference of 60 opacities and 5 effusions on 33 images, three of them without organs, and their organs."""
    folder = tmp_path_factory.mktemp("people")
    draw = np.random.default_rng(12)
    names = [f"i{n:02d}" for n in range(33)]
    images = pl.DataFrame({"image_id": names, "subject_id": [f"p{n}" for n in range(33)], "view": ["PA"] * 33})
    write_table(folder / "images.parquet", images)
    with (
        ShardWriter(folder / "frames.h5") as frames,
        ShardWriter(folder / "organs.h5", labels=["right lung", "left lung", "heart"]) as organs,
    ):
        for name in names[:30]:
            masks = np.zeros((3, 512, 512), bool)
            for mask, box in zip(masks, (RIGHT, LEFT_LUNG, HEART), strict=True):
                x1, y1, x2, y2 = map(int, box)
                mask[y1:y2, x1:x2] = True
            organs.append(name, mask=masks)
            frames.append(name, to_original=2 * SAME, original_shape=np.array([1024, 1024], np.int32))
    regions = []
    for n, name in enumerate(names):
        for lung in (RIGHT, LEFT_LUNG) if n < 27 else (RIGHT,):
            x, y = lung[0] + 200 * (0.2 + 0.4 * draw.random()), lung[1] + 300 * (0.3 + 0.4 * draw.random())
            w, h = 200 * (0.2 + 0.3 * draw.random()), 300 * (0.1 + 0.2 * draw.random())
            regions.append(
                Annotation(name, "Lung Opacity", (2 * x, 2 * y, 2 * (x + w), 2 * (y + h)), size=(1024, 1024))
            )
    regions += [Annotation(name, "Pleural Effusion", (120.0, 600.0, 480.0, 800.0)) for name in names[:5]]
    write_ms_cxr(folder / "people.csv", Annotations(regions, set()))
    return folder


def fitted(people, folder, options=OPTIONS, **files):
    folder.mkdir(exist_ok=True)
    given = {"images": str(people / "images.parquet"), "frames": [str(people / "frames.h5")],
             "organs": [str(people / "organs.h5")], "boxes": str(people / "people.csv")}  # fmt: skip
    run(**{key: str(folder / name) for key, name in OUT.items()}, **options, **given | files)
    return {key: folder / name for key, name in OUT.items()}


def test_a_fit_replaces_the_priors_that_have_boxes_and_says_so(people, tmp_path):
    files = fitted(people, tmp_path)
    told = read_catalogue(priors=files["priors"])
    origins = {name: one.prior.origin for name, one in told.findings.items()}
    assert origins == dict.fromkeys(FINDINGS, "paper") | {"opacity": "fit"}
    assert told.lungs == "CheXmask; fitted ones: lite"
    assert told.findings["effusion"] == CATALOGUE.findings["effusion"]
    samples = read_table(files["samples"])
    assert samples.filter(finding="opacity", exclusion_reason="").height == 57
    assert samples.filter(exclusion_reason="no organs of its image").height == 3
    fits = read_table(files["fits"])
    assert fits.filter(finding="effusion")["n"].unique().to_list() == [5]
    chosen = fits.filter(finding="opacity", selected=True)
    assert set(chosen["origin"]) == {"fit"}
    for element, parameters in chosen.select("element", "parameters").iter_rows():
        assert dict(told.findings["opacity"].prior.laws[element].parameters) == json.loads(parameters)
    width = samples.filter(finding="opacity", exclusion_reason="")["w"]
    assert told.findings["opacity"].prior.minimum[0] == width.min()
    assert read_table(files["symmetry_table"]).filter(finding="opacity")["num_right_side"].to_list() == [30] * 4
    again = fitted(people, tmp_path / "again")
    assert all(files[key].read_bytes() == again[key].read_bytes() for key in OUT)


def test_a_reference_may_have_images_of_its_own(people, tmp_path):
    """The same files, given as the reference's own beside a cohort that has none of its images."""
    whole = fitted(people, tmp_path / "whole")
    own = {f"own_{name}": str(people / file) for name, file in
           (("images", "images.parquet"), ("frames", "frames.h5"), ("organs", "organs.h5"))}  # fmt: skip
    files = fitted(people, tmp_path / "own", images="", frames=[], organs=[], **own)
    assert {key: path.read_bytes() for key, path in files.items()} == {
        key: path.read_bytes() for key, path in whole.items()
    }


def test_the_papers_priors_are_the_resource(people, tmp_path):
    files = fitted(people, tmp_path, boxes="", images="", frames=(), organs=())
    assert read_catalogue(priors=files["priors"]) == CATALOGUE
    assert read_table(files["samples"]).height == 0
    assert read_table(files["fits"])["selected"].all()
    assert set(read_table(files["zones"])["origin"]) == {"paper"}


def test_zones_are_fitted_where_there_are_enough_patients(people, tmp_path):
    table = tmp_path / "zones.csv"
    found = [Annotation(f"i{n:02d}.dcm", "left apical zone", (600.0, 180.0, 900.0 + n, 300.0)) for n in range(30)] + [
        Annotation(f"i{n:02d}.dcm", "right apical zone", (100.0, 200.0, 400.0, 300.0)) for n in range(19)
    ]
    write_chest_imagenome(table, Annotations(found, set()))
    files = fitted(people, tmp_path, zone_boxes=str(table))
    zones = {row[:2]: row for row in read_table(files["zones"]).iter_rows()}
    assert zones["left", "apical zone"][6:] == (30, "fit")
    assert zones["left", "apical zone"][2] == 0.0
    assert zones["right", "apical zone"][7] == "paper"
    told = yaml.safe_load(files["priors"].read_text())["zones"]["left"]["apical zone"]
    assert tuple(told) == zones["left", "apical zone"][2:6]


def test_a_reference_of_another_format_is_one_sentence(people, tmp_path):
    with pytest.raises(UserError, match=r"^semisyn\.references\.people\.path: .* no known heading"):
        fitted(people, tmp_path, OPTIONS | {"format": "vindr"})


def test_a_reference_without_a_box_of_any_finding_is_one_sentence(people, tmp_path):
    with pytest.raises(UserError, match=r"has no box of edema: map its labels in semisyn\.references\.people\.classes"):
        fitted(people, tmp_path, OPTIONS | {"findings": ["edema"]})

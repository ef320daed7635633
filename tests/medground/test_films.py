"""Zones and anomaly maps from results of ILS over the same films, and the judge that uses them (T9, section 8)."""

import csv
import json
import logging
import random
import re
import shutil
from collections import Counter

import cv2
import numpy as np
import pytest

from conftest import snakemake, write_settings
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LUNGS, ZONE_LABELS
from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.atoms import NO, UNCLEAR, YES, LogicOptions
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.scene import build_scene
from cxr.medground.verification import verify
from cxr.medground.verification.anatomy import (
    Anatomy,
    JudgeThresholds,
    excess_anomaly,
    measure_boxes,
    organ_iou,
    zone_fractions,
)
from cxr.medground.verification.claims import read_claims
from cxr.medground.verification.judge import ImageJudge, judge_query
from cxr.workflow.plan_medground import find_film_files
from cxr.workflow.settings import SettingsError
from cxr.workflow.settings import read as read_settings
from film_results import film_results
from medground_data import (
    SOURCES,
    facts_of,
    make_queries_of,
    make_regions_of,
    read_source,
    regions_of,
    source_keys,
    verification_options,
)
from medground_resolver import resolve
from medground_worlds import boxes_of, worlds

DARK = ("pneumothorax", "cardiomegaly", "right lung", "left lung", "cardiomediastinum", "airways")
"""Classes that the anomaly map cannot show."""
ORGANS = ("right lung", "left lung", "cardiomediastinum", "airways")


def keys_of(shared, folder, name="covid", rows=None, half=None, **more):
    """The keys of a source of real films; ``rows``: the images that it has."""
    given = SOURCES[name](shared, folder / "m.csv", half)
    if rows is not None:
        with open(folder / "m.csv", encoding="utf-8", newline="") as file:
            held = [row for row in csv.DictReader(file) if row["image_path"] in rows]
        with open(folder / "m.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, held[0])
            writer.writeheader()
            writer.writerows(held)
    classes = {
        label: words | {"opaque": label not in DARK, "inside": label not in ORGANS}
        for label, words in given["classes"].items()
    }
    return source_keys(**({"kind": "folder"} | given | {"classes": classes} | more))


def masked(shared):
    """The COVID films with masks, in order."""
    with open(shared / "data/covid/covid.csv", encoding="utf-8") as file:
        names = [row["image"] for row in csv.DictReader(file) if "lung_right" in (row["masks"] or "")]
    return [shared / "data/covid/images" / name for name in sorted(names)]


class Judged:
    """A source in ``folder`` with the judge's view of each image."""

    def __init__(self, folder, name, **rules):
        self.folder, self.facts = folder, facts_of(folder)
        self.thresholds = JudgeThresholds(**rules)
        self.images = {row["image_id"]: row for row in read_table(folder / "sources/images.parquet").to_dicts()}
        self.rows = {name: [] for name in self.images}
        for row in regions_of(folder):
            self.rows[row["image_id"]].append(row)
        with Shard(folder / "sources/00.h5") as shard:
            self.films = {name: verify.read_anatomy(shard, self.facts, row) for name, row in self.images.items()}

    def boxes(self, image_id):
        return [[row[side] for side in CORNERS] for row in self.rows[image_id]]

    def looked(self, image_id, boxes=None):
        scene = build_scene(self.images[image_id], self.rows[image_id], self.facts, 512)
        grey, decider = np.zeros((512, 512), np.uint8), Decider(scene, LogicOptions())
        return ImageJudge(grey, boxes or self.boxes(image_id), decider, self.thresholds, self.films[image_id])

    def judged(self, image_id, region, text, boxes=None):
        looked = self.looked(image_id, boxes)
        return judge_query(looked, [region], read_claims(text, looked.decider.scene))


@pytest.fixture(scope="module")
def given(shared, tmp_path_factory):
    """Six films; of the results, one is of a smaller copy, one of another film with its name, and one is missing."""
    folder, films = tmp_path_factory.mktemp("films"), masked(shared)[:6]
    small = cv2.imread(str(films[3]), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(folder / "small.png"), cv2.resize(small, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA))
    shutil.copyfile(films[0], folder / f"other{films[0].suffix}")
    ran = {f"study{at}": path for at, path in enumerate(films[:3])}
    ran |= {films[3].stem: folder / "small.png", films[4].stem: folder / f"other{films[0].suffix}"}
    results = film_results(folder / "results", ran)
    keys = keys_of(shared, folder, rows=list(map(str, films)), anatomy=str(results), anomaly="results")
    (folder / "read").mkdir()
    read_source(folder / "read", keys, name="films")
    make_regions_of(folder / "read")
    return folder / "read", keys, films, make_queries_of(folder / "read", "films", per_image=20)


def test_a_film_is_found_by_its_file_or_its_id_and_no_other_film_lends_it_zones(given):
    folder, _, films, _ = given
    state = dict(read_table(folder / "sources/images.parquet").select("image_id", "anatomy").iter_rows())
    wanted = ["found"] * 4 + ["different", "absent"]
    assert state == dict(zip([path.stem for path in films], wanted, strict=True))
    mapped = dict(read_table(folder / "sources/images.parquet").select("image_id", "anomaly").iter_rows())
    assert mapped == {name: state[name] == "found" for name in state}


def test_what_was_not_found_is_told_once(given, tmp_path, caplog):
    _, keys, _, _ = given
    with caplog.at_level(logging.WARNING):
        read_source(tmp_path, keys, name="films")
    (told,) = [record.getMessage() for record in caplog.records if "anatomy" in record.getMessage()]
    assert "2 of 6 radiographs have no anatomy in " in told
    assert "(1 of them are other images of the same name)" in told


def test_zones_and_map_lie_where_ils_has_them(given, tmp_path):
    """The oracle takes each pixel's centre to the original picture and from there into the frame of ILS."""
    _, keys, films, _ = given
    read_source(tmp_path, keys, name="films")
    rows = {row["image_id"]: row for row in read_table(tmp_path / "sources/images.parquet").to_dicts()}
    for at, name in ((0, "study0"), (1, "study1"), (3, films[3].stem)):
        row, stem = rows[films[at].stem], films[at].stem
        results = f"{keys['anatomy']}/{{}}/00.h5"
        with Shard(results.format("frames")) as frames, Shard(results.format("anatomy")) as anatomy:
            scale = frames.get("original_shape", name)[::-1] / np.array(cv2.imread(str(films[at])).shape[1::-1])
            to, there = np.array(row["to_original"]).reshape(2, 3), frames.get("to_original", name)
            zones = anatomy.masks(name)
        with Shard(results.format("anomaly")) as anomaly:
            levels = anomaly.get("anomaly", name)
        x, y = (np.arange(512) + 0.5 for _ in "xy")
        places = []
        for axis, centre in enumerate((x, y)):
            original = (to[axis, axis] * centre + to[axis, 2]) * scale[axis]
            places.append(np.floor((original - there[axis, 2]) / there[axis, axis]).astype(int))
        inside = np.ix_(*((one >= 0) & (one < 512) for one in places[::-1]))
        with Shard(tmp_path / "sources/00.h5") as shard:
            mine = dict(zip(ZONE_LABELS, shard.get("zones", stem), strict=True))
            kept = shard.get("anomaly", stem)
        clipped = np.ix_(*(np.clip(one, 0, 511) for one in places[::-1]))
        for zone in ("right lung base", "left upper zone lung"):
            wanted = zones[zone][clipped]
            assert mine[zone].any()
            assert (mine[zone][inside] == wanted[inside]).mean() > 0.9999
        assert (kept[inside] == levels[clipped][inside]).mean() > 0.9999


def test_zones_come_into_the_regions_and_the_queries_and_are_read_in_the_zones_masks(given):
    folder, _, films, lines = given
    found = {path.stem for path in films[:4]}
    for row in regions_of(folder):
        assert (row["zones"] is not None) == (row["image_id"] in found)
    zoned = [line for line in lines if any(atom.startswith("zone:") for atom in line["logic"]["atoms"])]
    assert {line["image_id"] for line in zoned} <= found
    assert len(zoned) >= 2
    known = worlds(folder, {line["image_id"] for line in lines})
    rows = {(row["image_id"], row["region"]): row for row in regions_of(folder)}
    for line in lines:
        world = known[line["image_id"]]
        wanted = {tuple(rows[line["image_id"], at][side] for side in CORNERS) for at in line["regions"]}
        assert boxes_of(world, resolve(line["query"], world)) == wanted, line["query"]


def test_every_query_is_kept_or_rejected_and_without_anatomy_it_is_unjudged(given, tmp_path):
    folder, _, films, lines = given
    verify.run_shard(
        sources=str(folder / "sources/00.h5"), images=str(folder / "sources/images.parquet"),
        regions=str(folder / "regions/00.parquet"), queries=str(folder / "queries/00.jsonl"),
        output=str(tmp_path / "00.jsonl"), rejected=str(tmp_path / "r.parquet"), **verification_options(),
    )  # fmt: skip
    kept, gone = list(read_lines(tmp_path / "00.jsonl")), read_table(tmp_path / "r.parquet")
    assert len(kept) + len(gone) == len(lines)
    assert set(gone.select("stage", "reason").rows()) <= {("III", "not_grounded")}
    found = {path.stem for path in films[:4]}
    verdicts = Counter((line["image_id"] in found, line["checks"]["verdict"]) for line in kept)
    assert verdicts[False, "unjudged"] > 0
    assert verdicts[False, "grounded"] == 0
    assert verdicts[True, "grounded"] > 0
    assert not set(gone["image_id"]) - found


def lung_query(side, one):
    return f"Find the {one} that is seen in the {side} lung."


def test_a_text_of_the_other_side_is_rejected_and_one_of_its_own_is_not(given):
    """By the box alone, without the second stage."""
    judged, right, wrong = Judged(given[0], "films"), [], []
    for image_id, film in judged.films.items():
        for row in (row for row in judged.rows[image_id] if film and row["label"] not in ORGANS):
            where = zone_fractions(film, [row[side] for side in CORNERS], 0.1)
            side = next((lung.split()[0] for lung in LUNGS if where.get(lung, 0) > 0.9), None)
            if side:
                one = row["label"]
                other = {"left": "right", "right": "left"}[side]
                right.append(judged.judged(image_id, row["region"], lung_query(side, one)).detail)
                wrong.append(judged.judged(image_id, row["region"], lung_query(other, one)).verdict)
    assert len(wrong) >= 5
    assert set(wrong) == {"rejected"}
    assert "place" not in right


def test_a_source_of_ils_is_never_judged_by_the_map_that_made_its_masks():
    with pytest.raises(SettingsError, match="kind is 'ils': set kind to folder or boxes or lvit"):
        read_settings({"medground": {"sources": {"sets": {"a": {"kind": "ils", "anatomy": "results"}}}}})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"anomaly": "results"}, "anomaly is results, but anatomy is empty"),
        ({"anatomy": "results", "domain": "ct"}, "domain is 'ct': set domain to cxr"),
        ({"anatomy": "results", "domain": "cxr", "orientation": "unknown"}, "orientation is 'unknown'"),
        ({"anatomy": "results", "domain": "cxr", "tile": 128}, "tile is 128: set tile to null"),
    ],
)
def test_a_wrong_setting_is_one_sentence(keys, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        read_settings({"medground": {"sources": {"sets": {"a": {"kind": "folder"} | keys}}}})


def test_a_folder_that_is_no_result_of_ils_is_one_sentence(tmp_path):
    keys = {"anatomy": str(tmp_path / "nowhere"), "anomaly": "results"}
    with pytest.raises(UserError, match=r"sets\.a\.anatomy: there is no folder"):
        find_film_files("a", keys, [])
    keys["anatomy"] = str(tmp_path)
    with pytest.raises(UserError, match=r"has no anatomy/\*\.h5: give the results folder of a run"):
        find_film_files("a", keys, [])
    for name in ("anatomy/00.h5", "frames/00.h5", "organs/00.h5", "cohort/00.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"has no anomaly/00\.h5: .*snakemake anomaly"):
        find_film_files("a", keys, [])
    found = find_film_files("a", keys | {"anomaly": "none"}, [])
    assert found["film_anatomy"] == [f"{tmp_path}/anatomy/00.h5"]
    assert "film_anomaly" not in found
    own = find_film_files("a", {"anatomy": "./results", "anomaly": "none"}, ["07"])
    assert own["film_cohort"] == ["results/cohort/07.parquet"]


def drawn_film(**more):
    """Two lungs of 40 x 80 px in a frame of 128, right at the left; the map shines in the right lung's lower half."""
    zones = {zone: np.zeros((128, 128), bool) for zone in ZONE_LABELS}
    zones["right lung"][20:100, 10:50] = True
    zones["left lung"][20:100, 70:110] = True
    zones["right lung base"][60:100, 10:50] = True
    anomaly = np.zeros((128, 128), np.uint8)
    anomaly[60:100, 10:50] = 30
    anomaly[20:100, 100:110] = 26  # an eighth of both lungs
    return Anatomy(zones, **({"anomaly": anomaly, "opaque": frozenset({"opacity"})} | more))


def test_the_shares_of_zones_in_a_box_are_of_its_lung_pixels():
    film = drawn_film()
    assert zone_fractions(film, (0, 40, 30, 80), 0.1) == {
        zone: {"right lung": 1.0, "right lung base": 0.5}.get(zone, 0.0) for zone in ZONE_LABELS
    }
    assert zone_fractions(film, (0, 0, 128, 21), 0.1) == {}  # 80 of 2,688 pixels are lung
    assert zone_fractions(film, (112, 0, 128, 128), 0.0) == {}


def test_anomalous_pixels_of_boxes_are_held_against_the_lungs_outside_all_of_them():
    film = drawn_film()
    # right lung: 1,600 px of 3,200 at 30; left: 800 of 3,200 at 26
    assert excess_anomaly(film, [(10, 60, 50, 100)], 26) == [pytest.approx(1 - 800 / 4800)]
    assert excess_anomaly(film, [(10, 60, 50, 100)], 27) == [1.0]
    assert excess_anomaly(film, [(10, 20, 50, 60), (10, 60, 50, 100)], 26) == pytest.approx([0 - 0.25, 1 - 0.25])
    assert excess_anomaly(film, [(112, 0, 128, 128)], 26) == [None]
    assert excess_anomaly(film, [(0, 0, 128, 128)], 26) == [None]
    assert excess_anomaly(drawn_film(anomaly=None), [(10, 60, 50, 100)], 26) == [None]


def test_a_box_of_an_organ_is_held_against_the_organs_own():
    film = drawn_film(organs={"heart": drawn_film().zones["right lung base"]})
    assert organ_iou(film, "heart", (10, 60, 50, 100)) == 1.0
    assert organ_iou(film, "heart", (10, 60, 50, 80)) == 0.5
    assert organ_iou(film, "right lung", (10, 60, 50, 100)) is None


BASE, UPPER, LEFT = (10, 60, 50, 100), (10, 20, 50, 60), (70, 20, 100, 60)
THRESHOLDS = JudgeThresholds()


def drawn_decider(film, boxes, label="opacity"):
    rows = [
        {
            "label": label, "area": 100, "area_ratio": 0.1, "cx": (x1 + x2) / 256, "cy": (y1 + y2) / 256,
            "elongation": None, "solidity": None, "contrast": None, "texture": None, "candidate": True,
            "within": [], "open_class": False, "x1": x1, "y1": y1, "x2": x2, "y2": y2, "region": at,
            "zones": [float(zone[y1:y2, x1:x2].mean()) for zone in film.zones.values()],
        }
        for at, (x1, y1, x2, y2) in enumerate(boxes)
    ]  # fmt: skip
    image = {"extent": [0, 0, 128, 128], "domain": "cxr", "radiological": True, "description": ""}
    facts = facts_like({label: {"one": label, "many": f"{label}s"}})
    return Decider(build_scene(image, rows, facts, 128), LogicOptions())


def facts_like(classes):
    from cxr.medground.logic.facts import Facts

    return Facts(list(classes), classes, ["zones"], ZONE_LABELS, [], "film", True)


@pytest.mark.parametrize(
    ("box", "text", "verdict", "verdicts"),
    [
        (BASE, "the opacity in the right lung base", "grounded", {"place": YES, "anomaly": YES}),
        (BASE, "the opacity in the left lung base", "rejected", {"place": NO, "anomaly": YES}),
        (BASE, "the opacity on the left", "rejected", {"place": NO, "anomaly": YES}),
        (BASE, "the opacity", "grounded", {"anomaly": YES}),
        (UPPER, "the opacity in the right lung", "rejected", {"place": YES, "anomaly": NO}),
        (LEFT, "the opacity", "rejected", {"anomaly": NO}),
        ((10, 60, 50, 62), "the opacity", "grounded", {"anomaly": YES}),
        ((10, 20, 50, 70), "the opacity in the right lung base", "unjudged", {"place": UNCLEAR, "anomaly": UNCLEAR}),
        (BASE, "the opacities in both lungs", "rejected", {"place": NO, "anomaly": YES}),
    ],
)  # fmt: skip
def test_one_measure_against_rejects_and_all_must_speak_for_it(box, text, verdict, verdicts):
    film = drawn_film()
    looked = ImageJudge(np.zeros((128, 128), np.uint8), [box], drawn_decider(film, [box]), THRESHOLDS, film)
    claims = read_claims(text, looked.decider.scene)
    if box == (10, 20, 50, 70):  # 400 of 2,000 lung pixels: .2; anomalous .2 against (1,200 + 800) / 4,400
        thresholds = JudgeThresholds(anomaly_no=-0.3)
        looked = ImageJudge(looked.grey, [box], looked.decider, thresholds, film)
    assert measure_boxes(film, looked.decider, [box], [0], claims, looked.thresholds)[0] == verdicts
    assert judge_query(looked, [0], claims).verdict == verdict


def test_without_a_map_or_a_place_nothing_is_judged():
    film = drawn_film(anomaly=None)
    looked = ImageJudge(np.zeros((128, 128), np.uint8), [BASE], drawn_decider(film, [BASE]), THRESHOLDS, film)
    assert judge_query(looked, [0], read_claims("the opacity", looked.decider.scene)).verdict == "unjudged"
    dark = drawn_film(opaque=frozenset())
    looked = ImageJudge(looked.grey, [BASE], looked.decider, THRESHOLDS, dark)
    assert judge_query(looked, [0], read_claims("the opacity", looked.decider.scene)).verdict == "unjudged"
    right = judge_query(looked, [0], read_claims("the opacity in the right lung", looked.decider.scene))
    assert (right.verdict, right.observed[0]["zones"]) == ("grounded", ["right lung", "right lung base"])


def auroc(true, moved):
    true, moved = np.array(true)[:, None], np.array(moved)
    return float((true > moved).mean() + 0.5 * (true == moved).mean())


def elsewhere(film, box, taken, draw, wanted=5):
    """Boxes of the size of one, moved to places in the lungs where no lesion's box is."""
    x1, y1, x2, y2 = box
    width, height, found = x2 - x1, y2 - y1, []
    least = max(0.5 * film.lungs[y1:y2, x1:x2].mean(), 0.2)
    for _ in range(400):
        x, y = draw.randrange(513 - width), draw.randrange(513 - height)
        free = all(x >= c or x + width <= a or y >= d or y + height <= b for a, b, c, d in taken)
        if free and film.lungs[y : y + height, x : x + width].mean() >= least:
            found.append((x, y, x + width, y + height))
        if len(found) == wanted:
            break
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("covid", 0.7), ("nih", 0.8)])
def test_true_boxes_against_boxes_moved_in_the_lungs(shared, tmp_path, name, least):
    """All films of a set, with the lite nets, which have learnt from them; the page has the figures held out."""
    keys = keys_of(shared, tmp_path, name)
    with open(keys["manifest"], encoding="utf-8") as file:
        paths = {row["image_path"]: None for row in csv.DictReader(file)}
    results = film_results(tmp_path / "results", {f"i{at}": path for at, path in enumerate(paths)})
    read_source(tmp_path, keys | {"anatomy": str(results), "anomaly": "results"}, name=name)
    judged = Judged(make_regions_of(tmp_path), name)
    true, moved, rejected = [], [], Counter()
    for image_id, film in judged.films.items():
        rows = [row for row in judged.rows[image_id] if film and row["label"] in film.opaque]
        taken = [tuple(row[side] for side in CORNERS) for row in judged.rows[image_id] if row["label"] not in ORGANS]
        for row in rows:
            box = tuple(row[side] for side in CORNERS)
            (excess,) = excess_anomaly(film, [box], 26)
            true += [] if excess is None else [excess]
            moved += [
                excess_anomaly(film, [one], 26)[0] for one in elsewhere(film, box, taken, random.Random(str(box)))
            ]
            where = zone_fractions(film, box, 0.1)
            side = next((lung.split()[0] for lung in LUNGS if where.get(lung, 0) > 0.9), None)
            if side:
                text = lung_query({"left": "right", "right": "left"}[side], row["label"])
                rejected[judged.judged(image_id, row["region"], text).verdict] += 1
    figures = {
        "boxes": (len(true), len(moved)),
        "auroc": round(auroc(true, moved), 3),
        "grounded": [round(float((np.array(one) >= 0.1).mean()), 2) for one in (true, moved)],
        "rejected": [round(float((np.array(one) < -0.1).mean()), 2) for one in (true, moved)],
        "wrong side": dict(rejected),
    }
    print(name, json.dumps(figures))
    assert figures["auroc"] >= least, figures
    assert figures["grounded"][0] > 2 * figures["grounded"][1], figures
    assert rejected["rejected"] >= 0.95 * rejected.total(), figures


@pytest.mark.slow
def test_from_a_cohort_to_judged_queries_of_the_same_films(shared, tmp_path):
    """One run whose cohort and source are the same films; a second one reads the results of the first."""
    films = masked(shared)[:4]
    columns = ("subject_id", "study_id", "image_id", "image_path", "findings", "view")
    with open(tmp_path / "cohort.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(
            (path.stem, path.stem, path.stem, path, "Opacity in the left lung.", "PA") for path in films[:3]
        )
    keys = keys_of(shared, tmp_path, rows=list(map(str, films)))
    source = {name: keys[name] for name in ("kind", "manifest", "domain", "classes")}
    source |= {"anatomy": "results", "anomaly": "results"}
    cohort = {"source": "manifest", "manifest": str(tmp_path / "cohort.csv"), "shards": 1}
    sources = {"sets": {"films": source}, "shards": 2}
    settings = {"cohort": cohort, "medground": {"sources": sources}}
    first = write_settings(tmp_path / "first", settings)
    snakemake(first, "medground_dataset")
    sources["sets"]["films"] = source | {"anatomy": str(first / "results")}
    other = write_settings(tmp_path / "other", {"medground": {"sources": sources}})
    snakemake(other, "medground_dataset")
    lines = [
        [line for split in ("train", "test") for line in read_lines(run / f"results/medground/dataset/{split}.jsonl")]
        for run in (first, other)
    ]
    assert lines[0] == lines[1]
    verdicts = Counter((line["image_id"] == films[3].stem, line["checks"]["verdict"]) for line in lines[0])
    assert verdicts[False, "grounded"] > 0
    assert verdicts[True, "unjudged"] > 0
    assert verdicts[True, "grounded"] == 0
    for run in (first, other):
        counts = read_table(run / "results/medground/dataset/conservation.tsv")
        assert (counts["in"] == counts["out"]).all()

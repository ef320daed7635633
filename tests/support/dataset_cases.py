"""Rows and files that the tests of the dataset stage build their studies from."""

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import polars as pl

from cxr.base.seeds import shard_of
from cxr.base.tables import write_lines, write_table
from cxr.base.vocabulary import LESIONS, SIDES, VALID_LOCATIONS
from cxr.ils.dataset.make_pairs import run
from cxr.ils.dataset.negatives import Bars, Evidence, choose_negatives, find_denials
from cxr.ils.dataset.settings import PairSettings
from cxr.ils.masks.make_masks import STUDIES

LUNG_LESIONS = tuple(lesion for lesion in LESIONS if lesion != "cardiomegaly")
ALL = frozenset(VALID_LOCATIONS)
RIGHT = frozenset(place for place in VALID_LOCATIONS if place.startswith("right"))
LEFT = ALL - RIGHT
SHARES = dict.fromkeys(LUNG_LESIONS, 0.1)
SEED = 7
OPTIONS = PairSettings(ctr_negative_max=0.45, global_share=SHARES, denials="all")  # as the paper


def unit(number: int, kind: str, target: str, location: list[str], **changes: object) -> dict:
    """One row of the units table; a basic of pneumonia, atelectasis, edema gets a twin unless told otherwise."""
    twin = kind == "basic" and target in ("pneumonia", "atelectasis", "edema")
    row = {
        "study_id": "s1",
        "image_id": "i1",
        "unit": number,
        "kind": kind,
        "target": target,
        "word": target,
        "certainty": "definitive",
        "sentence_index": 1,
        "location": location,
        "grounded_location": location,
        "reported_location": location,
        "finding": [number],
        "mask_id": f"m{number}",
        "area": 100,
        "inference": twin,
        "dropped": None,
        "inference_dropped": None,
    }
    return row | changes


WITNESSES = {
    lesion: {"quotes": [], "is_mentioned": False, "silent": list(SIDES), "neighbour": None, "elsewhere": True}
    for lesion in LESIONS
}
"""Of a report that is silent about everything."""
SIGNS = [{"location": place, "box_confidence": 0.0, "anomalous_fraction": 0.0} for place in VALID_LOCATIONS]
"""Of a quiet image."""


def study(**changes: object) -> dict:
    """One row of the studies table: an empty picture."""
    row = {
        "study_id": "s1",
        "image_id": "i1",
        "subject_id": "p1",
        "split": "train",
        "ctr": 0.4,
        "reported": [],
        "blocked": [],
        "occupied": [],
        "empty": list(VALID_LOCATIONS),
        "standing": [],
        "related": [],
        "signs": SIGNS,
        "lesion_blocked": [
            {"lesion": lesion, "locations": [], "anywhere": False, "global_blocked": False} for lesion in LESIONS
        ],
    }
    return row | changes


def tuple_(lesion: str | None, presence: str = "negative", **changes: object) -> dict:
    """One tuple of a report line."""
    row = {
        "entity": lesion or "nodule",
        "sentence_index": 1,
        "presence": presence,
        "certainty": "definitive",
        "location": None,
        "predicted_lesion_type": None,
        "category": "lung",
        "labels": [],
        "lesion_type": lesion,
        "hedge": "definite",
        "span": [0, 1],
        "denies": True,
    }
    return row | changes


def line(tuples: list[dict], **changes: object) -> dict:
    """One report line."""
    row = {
        "study_id": "s1",
        "subject_id": "p1",
        "section_name": "findings",
        "section_text": "The lungs are clear.",
        "sentences": ["The lungs are clear."],
        "tuples": tuples,
        "mentions_lungs": True,
        "comparison_only": False,
        "unknown_share": 0.0,
        "other_section": None,
        "digests": {"code": "c0de", "lexicon": "1ex1", "witnesses": "w0"},
        "witnesses": WITNESSES,
    }
    return row | changes


def said(**changes: object) -> Evidence:
    signs = {row["location"]: {"box_confidence": 0.0, "anomalous_fraction": 0.0} for row in SIGNS}
    return replace(Evidence("s1", ALL, ctr=0.4, witnesses=WITNESSES, signs=signs), **changes)


def may(lesion: str, evidence: Evidence, kinds: str = "strict"):
    return find_denials(lesion, evidence, replace(OPTIONS, kinds=kinds))


BARS = Bars(SHARES, 0.5)
"""Of a study that is drawn for alone: its shares are probabilities."""


def deny(evidence: Evidence, seed: int = 7, bars: Bars = BARS, taken: Collection[str] = ()):
    return choose_negatives(evidence, OPTIONS, seed, bars, taken)


def write_shard(folder: Path, name: str, studies: list[dict], units: list[dict], lines: list[dict]) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: str(folder / f"{name}.{kind}.parquet") for kind in ("studies", "units")}
    locations = pl.List(pl.String)
    unit_schema = dict.fromkeys(unit(0, "basic", "edema", []), pl.String) | {
        "unit": pl.Int64,
        "sentence_index": pl.Int64,
        "area": pl.Int64,
        "inference": pl.Boolean,
        "finding": pl.List(pl.Int64),
        **dict.fromkeys(("location", "grounded_location", "reported_location"), locations),
    }
    blocked = {"lesion": pl.String, "locations": locations, "anywhere": pl.Boolean, "global_blocked": pl.Boolean}
    study_schema = dict.fromkeys(study(), locations) | {
        **dict.fromkeys(("study_id", "image_id", "subject_id", "split"), pl.String),
        "ctr": pl.Float64,
        "standing": pl.List(pl.Struct({"lesion": pl.String, "locations": locations})),
        "lesion_blocked": pl.List(pl.Struct(blocked)),
        "signs": STUDIES["signs"].kind,
    }
    write_table(paths["studies"], pl.DataFrame(studies, schema=study_schema))
    write_table(paths["units"], pl.DataFrame(units, schema=unit_schema))
    write_lines(folder / f"{name}.reports.jsonl", lines)
    return paths | {"reports": str(folder / f"{name}.reports.jsonl")}


def random_cohort(size: int, seed: int = 3) -> list[tuple[dict, list[dict], dict]]:
    """Studies with random units and empties; some have nothing at all to say."""
    random_ = random.Random(seed)
    cohort = []
    for number in range(size):
        ids = {"study_id": f"{50000000 + number}", "image_id": f"img-{number:03d}"}
        split = random_.choice(("train", "train", "validate", "test"))
        row = study(**ids, subject_id=f"1{number // 2:07d}", split=split, ctr=random_.choice([0.4, 0.5, None]))
        units, tuples = [], []
        if number % 7 == 0:
            row |= {"empty": [], "ctr": 0.6}
        elif number % 2:
            place = random_.choice(VALID_LOCATIONS)
            target = random_.choice(LUNG_LESIONS)
            row["empty"] = [other for other in VALID_LOCATIONS if other.split()[0] != place.split()[0]]
            row["standing"] = [{"lesion": target, "locations": [place]}]
            units = [unit(n, kind, target, [place], **ids) for n, kind in enumerate(("basic", "global"))]
            tuples = [tuple_(target, "positive", labels=[place])]
        report = line(tuples, study_id=ids["study_id"], subject_id=row["subject_id"], comparison_only=number % 7 == 0)
        cohort.append((row, units, report))
    return cohort


def build(folder: Path, cohort: list, shards: int, order: int = 0, options: PairSettings = OPTIONS) -> dict[str, Path]:
    """Run the stage over the cohort, given in so many shards; returns the outputs."""
    rows = list(cohort)
    random.Random(order).shuffle(rows)
    inputs = []
    for shard in range(shards):
        mine = sorted(
            (row for row in rows if shard_of(row[0]["subject_id"], shards) == shard),
            key=lambda row: row[0]["study_id"],
        )
        units = [unit for row in mine for unit in row[1]]
        inputs.append(write_shard(folder / "in", f"{shard:02d}", [r[0] for r in mine], units, [r[2] for r in mine]))
    return make(folder, inputs, options)


def make(folder: Path, shards: list[dict[str, str]], options: PairSettings = OPTIONS) -> dict[str, Path]:
    """Run the stage over shards as :func:`write_shard` names them; returns the outputs."""
    final = {name: folder / f"{name}.jsonl" for name in ("train", "validate", "test")}
    final |= {name: folder / f"{name}.parquet" for name in ("excluded", "dropped")}
    inputs = {name: [shard[name] for shard in shards] for name in ("reports", "units", "studies")}
    run(**inputs, **{name: str(path) for name, path in final.items()}, options=options, seed=SEED)
    return final

"""Join the verified queries of all sources: lines per split, label baselines, pairs, statistics, conservation."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.hdf5 import Shard
from cxr.base.seeds import make_rng
from cxr.base.tables import read_lines, read_table, write_lines, write_rows
from cxr.base.vocabulary import SPLITS
from cxr.geometry.boxes import paired_iou
from cxr.medground.logic.facts import GRID_CORNERS, Facts, count_queries, group_by_image, paths_by_source
from cxr.medground.logic.scene import parse_class_words

FILES = (*SPLITS, "zero_shot")
STATISTICS: Columns = {
    "source": Column(pl.String, "Source; `total`: all."),
    "split": Column(pl.String, "Split, or zero_shot."),
    "images": Column(pl.Int64, "Images with a query."),
    "queries": Column(pl.Int64, "Accepted queries."),
    "trivial": Column(pl.Int64, "Of these, on an image with one candidate: any text gets the right answer."),
    "by_class": Column(pl.Int64, "Of these, where the class's word alone selects the answer."),
    **{
        kind: Column(pl.Int64, f"Queries for {answer}.")
        for kind, answer in (("single", "one region"), ("subset", "several regions"), ("all", "all of a class"))
    },
    "words": Column(pl.Float64, "Mean number of words."),
    "characters": Column(pl.Float64, "Mean number of characters."),
    "unjudged": Column(pl.Int64, "Queries that the judge could not judge."),
}  # fmt: skip
CONSERVATION: Columns = {
    "source": Column(pl.String, "Source."),
    "split": Column(pl.String, "Split."),
    "what": Column(pl.String, "What is counted: `images`, `components`, `wanted`, `made` or `accepted`."),
    "in": Column(pl.Int64, "Number that went in."),
    "out": Column(pl.Int64, "Number that came out."),
    "parts": Column(pl.String, "What came out, by name."),
}


UNITS: Columns = {
    "query_id": Column(pl.String, "Query of the test split: what experts judge."),
    "source": Column(pl.String, "Its source."),
    "image_id": Column(pl.String, "Its image."),
    "domain": Column(pl.String, "Kind of image."),
    "query": Column(pl.String, "Its text."),
    "regions": Column(pl.List(pl.Int64), "Its answer."),
}
LABEL_FIELDS = ("source", "image_id", "subject_id", "split", "domain", "modality")
"""Fields of a query's line that the lines of the baselines generic and class have as well."""
PAIR_OVERLAP = 0.1
"""Largest IoU of the two answers of a sensitivity pair."""
PAIRS_PER_IMAGE = 3
"""Most sensitivity pairs of an image."""


@dataclass(frozen=True)
class Source:
    """The tables and lines of one source. per_image: the setting; None where an image has its description as query."""

    name: str
    per_image: int | None
    images: pl.DataFrame
    facts: Facts
    regions: pl.DataFrame
    dropped: pl.DataFrame
    without: pl.DataFrame
    queries: list[dict]
    unasked: pl.DataFrame
    accepted: list[dict]
    rejected: pl.DataFrame


def answer_words(line: Mapping, labels: Mapping[int, str], facts: Facts) -> str:
    """Return the class words of a line's answer, the text of the baseline "replaced"."""
    nouns, counts = parse_class_words(facts.classes), Counter(labels[region] for region in line["regions"])
    return " and ".join(nouns[name].many if counts[name] > 1 else nouns[name].one for name in sorted(counts))


def make_baseline_lines(source: Source, kind: str) -> Iterator[dict]:
    """Yield the lines of a label baseline: generic, class or replaced."""
    rows_by_image = {
        image_id: {row["region"]: row for row in rows}
        for image_id, rows in group_by_image(source.regions.filter("candidate").iter_rows(named=True)).items()
    }
    labels = {
        image_id: {region: row["label"] for region, row in rows.items()} for image_id, rows in rows_by_image.items()
    }
    if kind == "replaced":
        for line in source.accepted:
            yield line | {"query": answer_words(line, labels[line["image_id"]], source.facts), "logic": None}
        return
    first_line_by_image = {line["image_id"]: line for line in reversed(source.accepted)}
    for image_id, line in sorted(first_line_by_image.items()):
        label_by_region = labels[image_id]
        for name in sorted(set(label_by_region.values())) if kind == "class" else [None]:
            regions = [region for region in sorted(label_by_region) if name in (None, label_by_region[region])]
            word = "region" if name is None else answer_words({"regions": regions}, label_by_region, source.facts)
            boxes = [[rows_by_image[image_id][region][corner] for corner in GRID_CORNERS] for region in regions]
            shared_fields = {"query_id": f"{image_id}-{name or 'all'}"} | {field: line[field] for field in LABEL_FIELDS}
            yield shared_fields | {"query": word, "regions": regions, "boxes": boxes}


def sensitivity_pairs(
    lines: Sequence[Mapping], labels: Mapping[tuple[str, str], Mapping[int, str]], seed: int
) -> Iterator[dict]:
    """Yield the sensitivity pairs: two single queries of a test image whose answers hardly overlap."""
    by_image: dict[tuple[str, str], list] = defaultdict(list)
    for line in lines:
        if line["split"] == "test" and line["kind"] == "single" and not line["trivial"]:
            by_image[line["source"], line["image_id"]].append(line)
    for key, image_lines in sorted(by_image.items()):
        image_pairs = [
            (first, second) for first, second in combinations(image_lines, 2)
            if first["regions"] != second["regions"]
            and paired_iou(*(np.array(line["boxes"][0], np.float64) for line in (first, second))) <= PAIR_OVERLAP
        ]  # fmt: skip
        if len(image_pairs) > PAIRS_PER_IMAGE:
            image_pairs = make_rng(seed, "pairs", *key).sample(image_pairs, PAIRS_PER_IMAGE)
        for first, second in image_pairs:
            first_class, second_class = (labels[key][line["regions"][0]] for line in (first, second))
            pair = {"source": key[0], "image_id": key[1], "first": first["query_id"], "second": second["query_id"]}
            yield pair | {"same_class": first_class == second_class}


def check_conservation(source: Source, split: str) -> list[dict]:
    """Return the counts that went into and came out of one source and split. Raises AssertionError if they differ."""
    images, rejected, unasked = (
        table.filter(split=split) for table in (source.images, source.rejected, source.unasked)
    )
    without_regions, regions, dropped = (
        table.join(images.select("image_id"), on="image_id", how="semi")
        for table in (source.without, source.regions, source.dropped)
    )
    candidate_lines = [line for line in source.queries if line["split"] == split]
    accepted = [line for line in source.accepted if line["split"] == split]
    queried, stages = {line["image_id"] for line in accepted}, Counter(rejected["stage"])
    # counted from the queries' fates, not as a remainder, so that a lost image is in none of the three
    silent = {*unasked["image_id"], *rejected["image_id"]} - queried
    balances = [
        ("images", len(images), {
            "with_queries": len(queried), "no_regions": len(without_regions), "no_query": len(silent),
        }),
        ("components", len(regions) + len(dropped), {
            "candidates": int(regions["candidate"].sum()), "distractors": int((~regions["candidate"]).sum()),
            "dropped": len(dropped),
        }),
        ("wanted", _num_requested(source.per_image, regions, candidate_lines), {
            "made": len(candidate_lines), "unasked": len(unasked),
        }),
        ("made", len(candidate_lines), {
            "accepted": len(accepted), **{f"rejected_{stage}": stages[stage] for stage in ("I", "II", "III")},
        }),
    ]  # fmt: skip
    return [_conservation_row(source.name, split, quantity, num_in, parts) for quantity, num_in, parts in balances]


def _num_requested(per_image: int | None, regions: pl.DataFrame, candidate_lines: Sequence[Mapping]) -> int:
    """Return how many queries the images with regions should have, by their number of candidates.

    If a table has more for an image, all of them count.
    """
    if per_image is None:
        return regions["image_id"].n_unique()
    num_by_image = Counter(line["image_id"] for line in candidate_lines)
    counts = regions.group_by("image_id").agg(pl.col("candidate").sum())
    return sum(
        max(num_by_image[image_id], count_queries(num_candidates, per_image))
        for image_id, num_candidates in counts.iter_rows()
    )


def _conservation_row(source: str, split: str, quantity: str, num_in: int, parts: Mapping[str, int]) -> dict:
    num_out = sum(parts.values())
    if num_in != num_out:
        raise AssertionError(f"medground, {source}, {split}: {num_in} {quantity} in, {num_out} out: {dict(parts)}")
    parts_text = " ".join(f"{name}:{count}" for name, count in parts.items())
    return {"source": source, "split": split, "what": quantity, "in": num_in, "out": num_out, "parts": parts_text}


def _read_sources(
    source_names: Sequence[str], per_image: int, stated: Sequence[str], files: Mapping[str, list[str]]
) -> Iterator[Source]:
    """Yield the sources. ``files``: {name: paths}, images of each source, the rest of each source and shard."""
    parts_by_file = {name: dict(paths_by_source(source_names, paths)) for name, paths in files.items()}
    for source in source_names:
        paths = {name: parts[source] for name, parts in parts_by_file.items()}
        with Shard(paths["sources"][0]) as shard:
            facts = Facts.from_shard(shard)
        tables = {
            name: pl.concat(map(read_table, paths[name]))
            for name in ("images", "regions", "dropped", "without", "unasked", "rejected")
        }
        lines = {name: [line for path in paths[name] for line in read_lines(path)] for name in ("queries", "accepted")}
        yield Source(source, None if source in stated else per_image, facts=facts, **tables, **lines)


def run(
    *, lines: list[str], labels: list[str], sensitivity: str, units: str, statistics: str, counts: str,
    source_names: list[str], uses: dict[str, str], stated: list[str], per_image: int, seed: int, **files: list[str],
) -> None:  # fmt: skip
    """Write the dataset. Raises AssertionError if counts do not add up.

    ``lines``: one file for each of :data:`FILES`, ``labels``: for each baseline and split; ``uses``: {source: dataset
    or zero_shot}; ``stated``: sources whose queries are statements, one an image; ``files``: of all sources and shards.
    """
    written: dict[str, list[dict]] = {name: [] for name in FILES}
    baselines: dict[str, list[dict]] = {Path(path).parent.name: [] for path in labels}
    classes, conservation_rows = {}, []
    for source in _read_sources(source_names, per_image, stated, files):
        use = uses[source.name]
        conservation_rows += [row for split in SPLITS for row in check_conservation(source, split)]
        for row in source.regions.iter_rows(named=True):
            classes.setdefault((source.name, row["image_id"]), {})[row["region"]] = row["label"]
        for line in source.accepted:
            written["zero_shot" if use == "zero_shot" else line["split"]].append(line)
        if use == "dataset":
            for folder in baselines:
                baselines[folder] += make_baseline_lines(source, folder.removeprefix("label_"))
        conservation_rows.append(_conservation_row(source.name, "all", "accepted", len(source.accepted), {
            name: sum(line["source"] == source.name for line in written[name]) for name in FILES
        }))  # fmt: skip
    for path in lines:
        write_lines(path, sorted(written[Path(path).stem], key=_sort_key))
    for path in labels:
        baseline_lines = [line for line in baselines[Path(path).parent.name] if line["split"] == Path(path).stem]
        write_lines(path, sorted(baseline_lines, key=_sort_key))
    all_lines = [line for name in FILES for line in sorted(written[name], key=_sort_key)]
    write_lines(sensitivity, list(sensitivity_pairs(all_lines, classes, seed)))
    test_lines = sorted(written["test"], key=_sort_key)
    write_rows(units, ({name: line[name] for name in UNITS} for line in test_lines), UNITS)
    write_rows(statistics, (row for name in FILES for row in _statistics(name, written[name])), STATISTICS)
    write_rows(counts, conservation_rows, CONSERVATION)


def _sort_key(line: Mapping) -> tuple[str, str, str]:
    return line["source"], line["image_id"], line["query_id"]


def _statistics(split: str, lines: Sequence[Mapping]) -> Iterator[dict]:
    groups = defaultdict(list)
    for line in lines:
        groups[line["source"]].append(line)
        groups["total"].append(line)
    for name in sorted(groups, key=lambda name: (name == "total", name)):
        group = groups[name]
        kinds = Counter(line["kind"] for line in group)
        yield {
            "source": name,
            "split": split,
            "images": len({(line["source"], line["image_id"]) for line in group}),
            "queries": len(group),
            "trivial": sum(line["trivial"] for line in group),
            "by_class": sum(line["by_class"] for line in group),
            **{kind: kinds[kind] for kind in ("single", "subset", "all")},
            "words": float(np.mean([len(line["query"].split()) for line in group])),
            "characters": float(np.mean([len(line["query"]) for line in group])),
            "unjudged": sum(line["checks"]["verdict"] == "unjudged" for line in group),
        }

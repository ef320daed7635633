"""Join the verified queries of all sources: lines per split, label baselines, pairs, statistics, conservation."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.hdf5 import Shard
from cxr.base.seeds import make_rng
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.base.vocabulary import SPLITS
from cxr.geometry.boxes import paired_iou
from cxr.medground.logic.facts import Facts
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


@dataclass(frozen=True)
class DatasetOptions:
    """The settings ``medground.dataset``; per_image, per_image_many, many: of the queries; uses: {source: dataset or
    zero_shot}; stated: sources whose queries are statements, one an image; sources: their names in order; shards:
    their shards' names.
    """

    labels: list
    per_image: int
    per_image_many: int
    many: int
    uses: dict
    stated: list
    sources: list
    shards: list
    seed: int
    pair_overlap: float = 0.1
    """Largest IoU of the two answers of a sensitivity pair."""
    pairs_per_image: int = 3
    """Most sensitivity pairs of an image."""


@dataclass(frozen=True)
class Source:
    """The files of one source, by shard."""

    name: str
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
    noun_by_class = parse_class_words(facts.classes)
    counts = Counter(labels[region] for region in line["regions"])
    return " and ".join(
        noun_by_class[name].many if counts[name] > 1 else noun_by_class[name].one for name in sorted(counts)
    )


def make_baseline_lines(source: Source, kind: str) -> Iterator[dict]:
    """Yield the lines of a label baseline: generic, class or replaced."""
    labels: dict[str, dict[int, str]] = defaultdict(dict)
    boxes: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for row in source.regions.iter_rows(named=True):
        if row["candidate"]:
            labels[row["image_id"]][row["region"]] = row["label"]
            boxes[row["image_id"]][row["region"]] = [row[name] for name in ("gx1", "gy1", "gx2", "gy2")]
    first: dict[str, dict] = {}
    for line in source.accepted:
        first.setdefault(line["image_id"], line)
        if kind == "replaced":
            yield line | {"query": answer_words(line, labels[line["image_id"]], source.facts), "logic": None}
    if kind == "replaced":
        return
    for image_id, line in sorted(first.items()):
        label_by_region = labels[image_id]
        names = sorted(set(label_by_region.values())) if kind == "class" else [None]
        for name in names:
            regions = [region for region in sorted(label_by_region) if name in (None, label_by_region[region])]
            word = "region" if name is None else answer_words({"regions": regions}, label_by_region, source.facts)
            shared_fields = {
                key: line[key] for key in ("source", "image_id", "subject_id", "split", "domain", "modality")
            }
            yield (
                {"query_id": f"{image_id}-{name or 'all'}"}
                | shared_fields
                | {
                    "query": word,
                    "regions": regions,
                    "boxes": [boxes[image_id][region] for region in regions],
                }
            )


def sensitivity_pairs(
    lines: Sequence[Mapping], labels: Mapping[tuple[str, str], Mapping[int, str]], options: DatasetOptions
):
    """Yield the sensitivity pairs: two single queries of a test image whose answers hardly overlap."""
    by_image: dict[tuple[str, str], list] = defaultdict(list)
    for line in lines:
        if line["split"] == "test" and line["kind"] == "single" and not line["trivial"]:
            by_image[line["source"], line["image_id"]].append(line)
    for key, image_lines in sorted(by_image.items()):
        image_pairs = []
        for at, first_line in enumerate(image_lines):
            for second_line in image_lines[at + 1 :]:
                first, second = (np.array(line["boxes"][0], np.float64) for line in (first_line, second_line))
                if (
                    first_line["regions"] != second_line["regions"]
                    and float(paired_iou(first, second)) <= options.pair_overlap
                ):
                    image_pairs.append((first_line, second_line))
        if len(image_pairs) > options.pairs_per_image:
            image_pairs = make_rng(options.seed, "pairs", *key).sample(image_pairs, options.pairs_per_image)
        for first_line, second_line in image_pairs:
            classes = [labels[key][line["regions"][0]] for line in (first_line, second_line)]
            yield {
                "source": key[0], "image_id": key[1],
                "first": first_line["query_id"], "second": second_line["query_id"],
                "same_class": classes[0] == classes[1],
            }  # fmt: skip


def check_conservation(source: Source, split: str, options: DatasetOptions) -> list[dict]:
    """Return the counts that went into and came out of one source and split. Raises AssertionError if they differ."""
    images = source.images.filter(split=split)
    ids = set(images["image_id"])
    queried = {line["image_id"] for line in source.accepted if line["split"] == split}
    rejected = source.rejected.filter(split=split)
    candidate_lines = [line for line in source.queries if line["split"] == split]
    accepted = [line for line in source.accepted if line["split"] == split]
    without_regions = source.without.filter(pl.col("image_id").is_in(list(ids)))
    regions = source.regions.filter(pl.col("image_id").is_in(list(ids)))
    dropped = source.dropped.filter(pl.col("image_id").is_in(list(ids)))
    unasked = source.unasked.filter(split=split)
    stages = Counter(rejected["stage"])
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
        ("wanted", _num_requested(source.name, regions, candidate_lines, options), {
            "made": len(candidate_lines), "unasked": len(unasked),
        }),
        ("made", len(candidate_lines), {
            "accepted": len(accepted), **{f"rejected_{stage}": stages[stage] for stage in ("I", "II", "III")},
        }),
    ]  # fmt: skip
    return [_conservation_row(source.name, split, quantity, num_in, parts) for quantity, num_in, parts in balances]


def _num_requested(
    source: str, regions: pl.DataFrame, candidate_lines: Sequence[Mapping], options: DatasetOptions
) -> int:
    """Return how many queries the images with regions should have, by their number of candidates.

    If a table has more for an image, all of them count. Statements: one per image.
    """
    if source in options.stated:
        return regions["image_id"].n_unique()
    num_by_image = Counter(line["image_id"] for line in candidate_lines)
    counts = regions.group_by("image_id").agg(pl.col("candidate").sum()).select("image_id", "candidate")
    return sum(
        max(num_by_image[image_id], options.per_image_many if count > options.many else options.per_image)
        for image_id, count in counts.iter_rows()
    )


def _conservation_row(source: str, split: str, quantity: str, num_in: int, parts: Mapping[str, int]) -> dict:
    num_out = sum(parts.values())
    if num_in != num_out:
        raise AssertionError(f"medground, {source}, {split}: {num_in} {quantity} in, {num_out} out: {dict(parts)}")
    parts_text = " ".join(f"{name}:{count}" for name, count in parts.items())
    return {"source": source, "split": split, "what": quantity, "in": num_in, "out": num_out, "parts": parts_text}


def _read_sources(options: DatasetOptions, files: Mapping[str, list[str]]) -> Iterator[Source]:
    count = len(options.shards)
    for at, name in enumerate(options.sources):
        part = {
            table_name: paths[at * count : (at + 1) * count]
            for table_name, paths in files.items()
            if len(paths) > at * count
        }
        with Shard(part["sources"][0]) as shard:
            facts = Facts.from_shard(shard)

        def tables(table_name: str, part=part) -> pl.DataFrame:
            return pl.concat(map(read_table, part[table_name]))

        yield Source(
            name,
            read_table(files["images"][at]),
            facts,
            tables("regions"),
            tables("dropped"),
            tables("without"),
            [line for path in part["queries"] for line in read_lines(path)],
            tables("unasked"),
            [line for path in part["accepted"] for line in read_lines(path)],
            tables("rejected"),
        )


def run(
    *, lines: list[str], labels: list[str], sensitivity: str, units: str, statistics: str, counts: str,
    options: DatasetOptions, **files: list[str],
) -> None:  # fmt: skip
    """Write the dataset. Raises AssertionError if counts do not add up.

    ``lines``: one file for each of :data:`FILES`, ``labels``: for each baseline and split; ``files``: of all sources
    and shards, in the order of the options.
    """
    written: dict[str, list[dict]] = {name: [] for name in FILES}
    baselines: dict[str, list[dict]] = {Path(path).parent.name: [] for path in labels}
    classes, conservation_rows = {}, []
    for source in _read_sources(options, files):
        use = options.uses[source.name]
        conservation_rows += [row for split in SPLITS for row in check_conservation(source, split, options)]
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
    write_lines(sensitivity, list(sensitivity_pairs(all_lines, classes, options)))
    write_table(units, _units(sorted(written["test"], key=_sort_key)), UNITS)
    rows = [row for name in FILES for row in _statistics(name, written[name])]
    write_table(statistics, pl.DataFrame(rows, schema=schema(STATISTICS)), STATISTICS)
    write_table(counts, pl.DataFrame(conservation_rows, schema=schema(CONSERVATION)), CONSERVATION)


UNITS: Columns = {
    "query_id": Column(pl.String, "Query of the test split: what experts judge."),
    "source": Column(pl.String, "Its source."),
    "image_id": Column(pl.String, "Its image."),
    "domain": Column(pl.String, "Kind of image."),
    "query": Column(pl.String, "Its text."),
    "regions": Column(pl.List(pl.Int64), "Its answer."),
}


def _units(lines: Sequence[Mapping]) -> pl.DataFrame:
    return pl.DataFrame([{name: line[name] for name in UNITS} for line in lines], schema=schema(UNITS))


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

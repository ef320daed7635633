"""Join the verified queries of all sources. Write the splits, baselines of class names, pairs of queries for the
measure Semantic Sensitivity, statistics, and a check that all counts add up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl

from cxr.base.columns import read_columns
from cxr.base.seeds import make_rng
from cxr.base.tables import read_lines, read_tables, write_lines, write_rows
from cxr.base.vocabulary import SPLITS
from cxr.geometry.boxes import paired_iou
from cxr.medground.logic.facts import GRID_CORNERS, Facts, count_queries, group_by_image, paths_by_source
from cxr.medground.logic.scene import parse_class_words

FILES = (*SPLITS, "zero_shot")
RESOURCE_FILES = ("columns/medground_dataset.toml",)
STATISTICS = read_columns("medground_dataset", "statistics")
CONSERVATION = read_columns("medground_dataset", "conservation")
UNITS = read_columns("medground_dataset", "units")
LABEL_FIELDS = ("source", "image_id", "subject_id", "split", "domain", "modality")
"""Fields that lines of the baselines ``generic`` and ``class`` copy from a query about the same image."""
PAIR_OVERLAP = 0.1  # largest IoU of the two answers of a sensitivity pair
PAIRS_PER_IMAGE = 3  # most sensitivity pairs of an image


def answer_words(labels: Iterable[str], facts: Facts) -> str:
    """Return the nouns of classes, such as "nuclei and rod". ``labels``: the class of each region of an answer."""
    nouns, counts = parse_class_words(facts.classes), Counter(labels)
    return " and ".join(nouns[name].many if counts[name] > 1 else nouns[name].one for name in sorted(counts))


def make_baseline_lines(source: SimpleNamespace, kind: str) -> Iterator[dict]:
    """Yield the lines of a label baseline, whose texts are class names in place of queries. ``kind`` is ``generic``
    (the text "region" for all candidates of an image, which are regions that may be answers), ``class`` (for each class
    of an image, its noun for all its candidates) or ``replaced`` (each query becomes the nouns of its answer)."""
    rows_by_image = group_by_image(source.regions.filter("candidate").iter_rows(named=True))
    for line in source.accepted if kind == "replaced" else ():
        labels = {row["region"]: row["label"] for row in rows_by_image[line["image_id"]]}
        text = answer_words((labels[region] for region in line["regions"]), source.facts)
        yield line | {"query": text, "logic": None}
    first_line_by_image = {line["image_id"]: line for line in reversed(source.accepted)}
    for image_id, line in sorted(first_line_by_image.items()) if kind != "replaced" else ():
        rows = rows_by_image[image_id]
        for label in sorted({row["label"] for row in rows}) if kind == "class" else [None]:
            class_rows = [row for row in rows if label in (None, row["label"])]
            text = answer_words((row["label"] for row in class_rows), source.facts) if label else "region"
            boxes = [[row[corner] for corner in GRID_CORNERS] for row in class_rows]
            answer = {"query": text, "regions": [row["region"] for row in class_rows], "boxes": boxes}
            yield {"query_id": f"{image_id}-{label or 'all'}"} | {name: line[name] for name in LABEL_FIELDS} | answer


def sensitivity_pairs(lines: Sequence[Mapping], labels: Mapping[tuple, Mapping], seed: int) -> Iterator[dict]:
    """Yield pairs of test queries about the same image, for the measure Semantic Sensitivity. Each query selects one
    region, and the boxes' IoU is at most :data:`PAIR_OVERLAP`. ``labels``: {(source, image id): {region: class}}."""
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


def check_conservation(source: SimpleNamespace, split: str) -> list[dict]:
    """Return rows of :data:`CONSERVATION` for one source and split: the numbers of images, components and queries, and
    the numbers of their parts, such as accepted and rejected. Raises AssertionError if the parts do not add up."""
    images, rejected, unasked = (part.filter(split=split) for part in (source.images, source.rejected, source.unasked))
    tables, names = (source.without, source.regions, source.dropped), images.select("image_id")
    without_regions, regions, dropped = (table.join(names, on="image_id", how="semi") for table in tables)
    candidate_lines = [line for line in source.queries if line["split"] == split]
    accepted = [line for line in source.accepted if line["split"] == split]
    queried, stages = {line["image_id"] for line in accepted}, Counter(rejected["stage"])
    # counted, not taken as the remainder, so that a lost image is noticed
    silent = {*unasked["image_id"], *rejected["image_id"]} - queried
    num_candidates, num_made = int(regions["candidate"].sum()), len(candidate_lines)
    num_distractors, num_dropped = len(regions) - num_candidates, len(dropped)
    num_in = {"images": len(images), "components": len(regions) + num_dropped}
    num_in |= {"wanted": _num_requested(source.per_image, regions, candidate_lines), "made": num_made}
    parts = {
        "images": {"with_queries": len(queried), "no_regions": len(without_regions), "no_query": len(silent)},
        "components": {"candidates": num_candidates, "distractors": num_distractors, "dropped": num_dropped},
        "wanted": {"made": num_made, "unasked": len(unasked)},
        "made": {"accepted": len(accepted)} | {f"rejected_{stage}": stages[stage] for stage in ("I", "II", "III")},
    }
    return [_conservation_row(source.name, split, name, number, parts[name]) for name, number in num_in.items()]


def _num_requested(per_image: int | None, regions: pl.DataFrame, candidate_lines: Sequence[Mapping]) -> int:
    """Return how many queries were requested: one per image with regions if ``per_image`` is None, otherwise
    :func:`count_queries` per image, or the number in a user's table if it is larger."""
    if per_image is None:
        return regions["image_id"].n_unique()
    num_by_image = Counter(line["image_id"] for line in candidate_lines)
    counts = regions.group_by("image_id").agg(pl.col("candidate").sum()).iter_rows()
    return sum(max(num_by_image[image_id], count_queries(number, per_image)) for image_id, number in counts)


def _conservation_row(source: str, split: str, quantity: str, num_in: int, parts: Mapping[str, int]) -> dict:
    num_out = sum(parts.values())
    if num_in != num_out:
        raise AssertionError(f"{source}, {split}: the parts of {num_in} {quantity} add up to {num_out}: {dict(parts)}")
    parts_text = " ".join(f"{name}:{count}" for name, count in parts.items())
    return {"source": source, "split": split, "quantity": quantity, "in": num_in, "out": num_out, "parts": parts_text}


def _read_sources(
    source_names: Sequence[str], per_image: int, stated: Sequence[str], files: Mapping[str, list[str]]
) -> Iterator[SimpleNamespace]:
    """Yield a namespace for each source with its name, facts, tables and queries. Its ``per_image`` is None if the
    source is in ``stated``, because its queries are the images' descriptions. ``files``: {name of an input: paths},
    with one path per source for ``images``, and one path per shard for all other names."""
    parts_by_file = {name: dict(paths_by_source(source_names, paths)) for name, paths in files.items()}
    for source in source_names:
        paths = {name: parts[source] for name, parts in parts_by_file.items()}
        facts = Facts.read(paths["sources"][0])
        table_names = ("images", "regions", "dropped", "without", "unasked", "rejected")
        tables = {name: read_tables(paths[name]) for name in table_names}
        lines = {name: [line for path in paths[name] for line in read_lines(path)] for name in ("queries", "accepted")}
        num_queries = None if source in stated else per_image
        yield SimpleNamespace(name=source, per_image=num_queries, facts=facts, **tables, **lines)


def run(
    *, lines: list[str], labels: list[str], sensitivity: str, units: str, statistics: str, counts: str,
    source_names: list[str], uses: dict[str, str], stated: list[str], per_image: int, seed: int, **files: list[str],
) -> None:  # fmt: skip
    """Write the queries to ``lines``, the baselines to ``labels``, and further tables. Raises AssertionError if counts
    do not add up. ``uses``: {source: ``dataset`` or ``zero_shot``}. ``stated``: sources whose queries are the images'
    descriptions. ``files``: {name of an input: paths for all sources}."""
    lines_by_file: dict[str, list[dict]] = {name: [] for name in FILES}
    baselines: dict[str, list[dict]] = {Path(path).parent.name: [] for path in labels}
    classes, conservation_rows = {}, []
    for source in _read_sources(source_names, per_image, stated, files):
        conservation_rows += [row for split in SPLITS for row in check_conservation(source, split)]
        for row in source.regions.iter_rows(named=True):
            classes.setdefault((source.name, row["image_id"]), {})[row["region"]] = row["label"]
        for line in source.accepted:
            lines_by_file["zero_shot" if uses[source.name] == "zero_shot" else line["split"]].append(line)
        if uses[source.name] == "dataset":
            for folder in baselines:
                baselines[folder] += make_baseline_lines(source, folder.removeprefix("label_"))
        parts = {name: sum(line["source"] == source.name for line in lines_by_file[name]) for name in FILES}
        conservation_rows.append(_conservation_row(source.name, "all", "accepted", len(source.accepted), parts))
    for file_lines in (*lines_by_file.values(), *baselines.values()):
        file_lines.sort(key=lambda line: (line["source"], line["image_id"], line["query_id"]))
    for path in lines:
        write_lines(path, lines_by_file[Path(path).stem])
    for path in labels:
        write_lines(path, [line for line in baselines[Path(path).parent.name] if line["split"] == Path(path).stem])
    all_lines = [line for file_lines in lines_by_file.values() for line in file_lines]
    write_lines(sensitivity, sensitivity_pairs(all_lines, classes, seed))
    write_rows(units, ({name: line[name] for name in UNITS} for line in lines_by_file["test"]), UNITS)
    write_rows(statistics, (row for name in FILES for row in _statistics(name, lines_by_file[name])), STATISTICS)
    write_rows(counts, conservation_rows, CONSERVATION)


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

"""The page stage: write one page of results from the tables and images of a run."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.paths import group_by_folder
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.metrics.masks import PAIR_METRICS
from cxr.plotting.encoding import image_file_url
from cxr.plotting.panels import DROPPED_COLOUR, KEPT_COLOUR, LESION_COLOURS
from cxr.plotting.plots import BLUE, GREY, ORANGE
from cxr.reporting.page import radvlm, sections, versions
from cxr.reporting.page.sections import SYNTHETIC_MARK, format_number

RESOURCE_FILES = ("page", "organs/lite.onnx", "organs/upright.onnx", "anomaly/lite.onnx", "boxes/lite.onnx", "../envs")
ABLATION = "results/ablation/"
SEMISYN = "results/semisyn/"
MEDGROUND = "results/medground/"
EVALUATION = "results/evaluation/"
MAX_DETAILS = 8
"""Maximum number of details that the page shows per reason for an exclusion."""


def run(
    *, counts_table: str, splits_table: str, funnel_table: str, recall_table: str, reading_table: str, words_table: str,
    cases_lines: str, reports: list[str], maps: list[str], masks: list[str], test: list[str], corrected: list[str],
    excluded: list[str], index: str, versions_table: str, thresholds: list[str], engines: dict[str, str], source: str,
    extras: dict[str, str], truth_table: str | None = None, manifests: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the page and the table of versions.

    ``test`` has the pairs of the evaluated split, one file per threshold set of ``thresholds``. ``corrected`` are
    tables of images with corrected headers. ``excluded`` are the tables of excluded images of the stages that read the
    user's files. ``source`` is the setting ``cohort.source``. ``extras`` is {path: digest} of the existing files of
    optional stages, such as the evaluation.
    """
    version_info = versions.collect_versions(group_by_folder(maps), masks, reports, manifests or [], engines)
    write_table(versions_table, versions.tabulate_versions(version_info), versions.VERSIONS)
    first, *other_sets = thresholds
    is_synthetic = source == "embedded"
    splits, funnel, recall = (read_table(path) for path in (splits_table, funnel_table, recall_table))
    ablation = read_table(f"{ABLATION}points.tsv") if f"{ABLATION}points.tsv" in extras else None
    if ablation is not None:  # it is outdated if its counts of studies differ from those of the recall table
        current = recall.select("thresholds", "lesion", "grounded", "total")
        studies = ablation.select("thresholds", "lesion", "recalled", "studies")
        ablation = ablation if set(current.iter_rows()) == set(studies.iter_rows()) else None
    lines = list(read_lines(cases_lines))
    count_rows, share_rows = sections.count_rows(read_table(counts_table), thresholds)
    split_shares = {name: sections.lesion_shares(splits, name) for name in thresholds}
    truth = read_table(truth_table) if truth_table else None
    sections.write_page(
        index, "index.html.j2",
        source=sections.WORDS["sources"].get(source, "a cohort given by a manifest"),
        engines=engines,
        sets=thresholds,
        first=first,
        others=other_sets,
        thresholds=version_info["thresholds"],
        counts={row["count"]: row for row in count_rows},
        headlines=count_rows,
        share_rows=share_rows,
        funnels={name: sections.funnel_steps(funnel, name) for name in thresholds},
        exclusions=sections.exclusion_details([read_table(path) for path in excluded], MAX_DETAILS),
        corrections=sections.correction_counts(pl.concat([read_table(path) for path in corrected]), MAX_DETAILS),
        stops=sections.rank_losses(funnel, first),
        shares=split_shares,
        share_most={name: max(max(row["ours"], row["paper"]) for row in rows) for name, rows in split_shares.items()},
        splits={name: sections.split_rows(splits, name) for name in thresholds},
        recall_columns=sections.RECALL_COLUMNS,
        recall=sections.recall_rows(recall, ablation, beside_paper=not is_synthetic),
        recall_notes=[] if is_synthetic else list(filter(None, recall["note"].unique(maintain_order=True))),
        synthetic=is_synthetic,
        synthetic_mark=SYNTHETIC_MARK if is_synthetic else "",
        split_names=SPLITS,
        reading=sections.reading_outcomes(read_table(reading_table)),
        words=sections.unknown_words(read_table(words_table)),
        ablation=None if ablation is None else _ablation_section(ablation, extras),
        gallery={
            name: {lesion: [c for c in lines if (c.get("thresholds"), c.get("lesion")) == (name, lesion)]
                   for lesion in LESIONS}
            for name in thresholds
        },
        calibration=[line for line in lines if line["kind"] == "calibration"],
        picture=lambda name: image_file_url(Path(cases_lines).parent / "parts" / name),
        truth={} if truth is None else {name: sections.truth_rows(truth, name) for name in thresholds},
        lesions=LESIONS,
        evaluation=_evaluation_section(extras, test),
        semisyn=_semisyn_section(extras),
        medground=_medground_section(extras),
        radvlm=radvlm.find_section(extras),
        stages=version_info["stages"],
        weights=version_info["weights"],
        pins=version_info["pins"],
        colours={"ours": BLUE, "paper": GREY, "lost": ORANGE, "kept": KEPT_COLOUR, "dropped": DROPPED_COLOUR},
        lesion_colours=LESION_COLOURS,
    )  # fmt: skip


def _existing(extras: Collection[str], folder: str, *names: str) -> list[str] | None:
    paths = [f"{folder}{name}" for name in names]
    return paths if all(path in extras for path in paths) else None


def _figures(extras: Collection[str], captions: Mapping[str, str], remark: str) -> list[dict]:
    """Return the figures of ``captions`` {path: caption} that exist. Their alternative texts end with ``remark``."""
    return [
        {"src": image_file_url(path), "alt": f"{caption}.{remark}", "caption": caption}
        for path, caption in captions.items()
        if path in extras
    ]


def _ablation_section(table: pl.DataFrame, extras: Collection[str]) -> dict:
    average = table.filter(pl.col("lesion") == "average").sort("recall", descending=True, nulls_last=True)
    best = average.row(0, named=True)
    words = (
        f"Of {len(average)} points, {best['thresholds']} has the highest average recall: "
        f"{format_number(best['recall'], 1)} %, with {format_number(best['yield'])} findings with a grounded mask"
    )
    captions = {
        f"{ABLATION}curves.png": "Recall and yield of each lesion type against each varied threshold",
        f"{ABLATION}map.png": "Recall over the first two varied thresholds",
    }
    return {"words": words, "figures": _figures(extras, captions, f" {words}.")}


def _evaluation_section(extras: Collection[str], test: Sequence[str]) -> dict | None:
    """Return the evaluation section, or None without scores. ``stale`` in it lists runs scored on outdated pairs."""
    if f"{EVALUATION}comparison.tsv" not in extras:
        return None
    rows = sections.evaluation_rows(read_table(f"{EVALUATION}comparison.tsv"))
    names = [metric.title for metric in PAIR_METRICS.values()] + ["answers right (strict)"]
    ours = "; ".join(
        f"{row['who']}: " + ", ".join(f"{name} {text}" for name, (text, _) in zip(names, row["cells"], strict=False))
        for row in rows
        if row["source"] == "ours"
    )
    current = [
        {
            (row["pair_id"], row["target"], row["type"], "positive" if row["seg"] else "negative")
            for row in read_lines(path)
        }
        for path in test
    ]
    scored = [path for path in extras if path.startswith(EVALUATION) and path.endswith("/pairs.parquet")]
    keys = ("pair_id", "target", "type", "polarity")
    stale = [Path(path).parent.name for path in scored if set(read_table(path).select(keys).iter_rows()) not in current]
    paper_mark = "with intervals; diamonds: the paper's, of its test split"
    captions = {
        f"{EVALUATION}masks.png": f"Masks per lesion type, {paper_mark}",
        f"{EVALUATION}text.png": f"Answers per type of instruction, {paper_mark}",
    }
    trainings = {
        path: f"Course of the training {Path(path).parent.name}: losses of its updates, and scores by epoch"
        for path in extras
        if path.startswith("results/training/")
    }
    figures = [*_figures(extras, captions, f" In total, {ours}."), *_figures(extras, trainings, "")]
    changes = f"{EVALUATION}paraphrases.tsv"
    wording = sections.wording_rows(read_table(changes)) if changes in extras else []
    return {
        "titles": sections.SCORE_TITLES.values(), "metrics": sections.describe_mask_metrics(), "rows": rows,
        "figures": figures, "stale": stale, "wording": wording,
    }  # fmt: skip


def _semisyn_section(extras: Collection[str]) -> dict | None:
    """Return SemiSynCXR's section (selection of healthy images, jobs, example sheet), or None if a file is missing."""
    paths = _existing(extras, SEMISYN, "healthy/funnel.tsv", "dataset/conservation.tsv", "dataset/sheet.jpg")
    if paths is None:
        return None
    funnel, jobs = (read_table(path).to_dicts() for path in paths[:2])
    num_exported = sum(row["exported"] for row in jobs if row["finding"] != "all")
    return {"funnel": funnel, "jobs": jobs, "sheet": image_file_url(paths[2]), "images": num_exported}


def _medground_section(extras: Collection[str]) -> dict | None:
    """Return MedGround's section, or None if a required file is missing. Scores and the paper's tables are optional."""
    tables = ("verification/passrate.tsv", "dataset/statistics.tsv")
    paths = _existing(extras, MEDGROUND, *tables, "dataset/language.png", "dataset/gallery/gallery.jsonl")
    if paths is None:
        return None
    rates, statistics, chart, gallery = paths
    cases = [line | {"src": image_file_url(Path(gallery).parent / line["file"])} for line in read_lines(gallery)]
    kinds = {"accepted": "Accepted queries", "rejected": "Rejected queries", "pair": "Sensitivity pairs"}
    scores = _existing(extras, MEDGROUND, "scoring/comparison.tsv", "scoring/scores.png")
    paper = _existing(extras, MEDGROUND, "dataset/paper.tsv")
    rows = read_table(paper[0]).to_dicts() if paper else []
    paper_tables = ("Table 1", "Table 2", "Table 5", "Table 6") if paper else ()
    return {
        "passed": read_table(rates).filter(split="all").to_dicts(),
        "statistics": read_table(statistics).filter(pl.col("queries") > 0).to_dicts(),
        "chart": image_file_url(chart),
        "gallery": {title: [case for case in cases if case["kind"] == kind] for kind, title in kinds.items()},
        "scores": read_table(scores[0]).to_dicts() if scores else [],
        "bars": image_file_url(scores[1]) if scores else "",
        "paper": {name: [row for row in rows if row["table"] == name] for name in paper_tables},
    }

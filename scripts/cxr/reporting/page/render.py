"""The page stage: write one page of results from the tables and images of a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.paths import SCRIPTS
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.plotting.encoding import image_file_url
from cxr.plotting.palette import DROPPED, KEPT, LESION_COLOURS
from cxr.plotting.plots import BLUE, GREY, ORANGE
from cxr.reporting.page import radvlm, sections, versions
from cxr.reporting.page.sections import SYNTHETIC_MARK, format_number, load_template

RESOURCE_FILES = ("page", "organs/lite.onnx", "organs/upright.onnx", "anomaly/lite.onnx", "boxes/lite.onnx", "../envs")
ABLATION = "results/ablation/"
SEMISYN = "results/semisyn/"
MEDGROUND = "results/medground/"
EVALUATION = "results/evaluation/"
SOURCES = {
    "embedded": "the embedded cohort: synthetic X-rays and reports whose truth is known",
    "mimic": "MIMIC-CXR",
    "openi": "the Indiana University chest X-ray collection (Open-i)",
}
MAX_DETAILS = 8
"""Maximum number of details shown per reason; the ledger has all."""


@dataclass(frozen=True)
class PageOptions:
    """Facts about the run that are not in the page's files: built sets, engines, and other results (path: digest)."""

    thresholds: list[str]
    engines: dict[str, str]
    source: str
    extras: dict[str, str]


def collect_versions(
    shards: Mapping[str, Sequence[str]], reports: Sequence[str], manifests: Sequence[str], engines: dict[str, str]
) -> dict:
    """Return the versions behind the results: ``stages``, ``weights``, ``pins``, ``thresholds`` ({set: {part: {tau:
    value}}})."""
    first = [line for path in reports for line in _read_first_line(path)]
    stages = versions.report_versions("reports", first)
    thresholds: dict[str, dict] = {}
    for stage, paths in shards.items():
        sets = sorted({Path(path).parent.name for path in paths}) if stage == "masks" else [""]
        for name in sets:
            set_paths = [path for path in paths if not name or Path(path).parent.name == name]
            rows = versions.shard_versions(stage, set_paths, key="mask_id" if stage == "masks" else "image_id")
            for row in rows:
                row["stage"] = f"{stage} {name}".strip()
            stages += rows
            if name and rows:
                thresholds[name] = rows[0]["thresholds"]
    weights = versions.lite_weight_rows(engines) + versions.published_weight_rows(manifests)
    return {
        "stages": stages,
        "weights": weights,
        "pins": versions.read_pins(SCRIPTS.parent / "envs"),
        "thresholds": thresholds,
    }


def _read_first_line(path: str) -> list[dict]:
    """Return the first line of a file; the same code made all lines of a shard of reports."""
    return [line for _, line in zip(range(1), read_lines(path), strict=False)]


VERSIONS = {
    "kind": Column(pl.String, "code, settings, weights or package."),
    "name": Column(pl.String, "Stage, weights file or package."),
    "version": Column(pl.String, "Digest, or version of a package."),
    "detail": Column(pl.String, "Engine of a stage, licence of weights, or environments with the package."),
}


def tabulate_versions(version_info: dict) -> pl.DataFrame:
    """Return a row of :data:`VERSIONS` for each digest, weight and pinned package."""
    rows = [
        (kind, row["stage"], row[kind], row["engine"])
        for row in version_info["stages"]
        for kind in ("code", "settings")
    ]
    rows += [
        ("weights", f"{row['artefact']}: {row['file']}", row["sha256"], row["licence"])
        for row in version_info["weights"]
    ]
    rows += [("package", pin.split()[0], pin.split()[1], ", ".join(envs)) for pin, envs in version_info["pins"].items()]
    return pl.DataFrame(rows, schema=schema(VERSIONS), orient="row")


def run(
    *,
    counts_table: str,
    splits_table: str,
    funnel_table: str,
    recall_table: str,
    reading_table: str,
    words_table: str,
    cases_lines: str,
    reports: list[str],
    frames: list[str],
    organs: list[str],
    anomaly: list[str],
    anatomy: list[str],
    masks: list[str],
    test: list[str],
    corrected: list[str],
    left_out: list[str],
    index: str,
    versions_table: str,
    options: PageOptions,
    truth_table: str | None = None,
    manifests: list[str] | None = None,
) -> None:
    """Write the page and the table of versions.

    ``test``: the lines of the evaluated split, one file per built threshold set; ``corrected``: tables of images with
    corrected headers; ``left_out``: the ledgers of the stages that read the user's files.
    """
    shards = {"frames": frames, "organs": organs, "anomaly": anomaly, "anatomy": anatomy, "masks": masks}
    version_info = collect_versions(shards, reports, manifests or [], options.engines)
    write_table(versions_table, tabulate_versions(version_info), VERSIONS)
    page = render_page(
        tables={
            "counts": read_table(counts_table),
            "splits": read_table(splits_table),
            "funnel": read_table(funnel_table),
            "recall": read_table(recall_table),
            "reading": read_table(reading_table),
            "words": read_table(words_table),
            "corrected": pl.concat([read_table(path) for path in corrected]),
            "truth": read_table(truth_table) if truth_table else None,
        },
        lines=list(read_lines(cases_lines)),
        picture=lambda name: image_file_url(Path(cases_lines).parent / "parts" / name),
        embed=image_file_url,
        test={Path(path).parent.name: path for path in test},
        ledgers=[read_table(path) for path in left_out],
        version_info=version_info,
        options=options,
    )
    with atomic_file(index) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_page(
    *,
    tables: dict[str, pl.DataFrame | None],
    lines: Sequence[dict],
    picture: Callable[[str], str],
    embed: Callable[[str], str],
    test: dict[str, str],
    ledgers: Sequence[pl.DataFrame],
    version_info: dict,
    options: PageOptions,
) -> str:
    """Return the page as HTML.

    ``picture`` and ``embed`` return the ``data:`` URL of a gallery image by name and of a file by path; ``ledgers``:
    of the stages that read the user's files.
    """
    name, *other_sets = options.thresholds
    synthetic = options.source == "embedded"
    ablation = read_table(f"{ABLATION}points.tsv") if f"{ABLATION}points.tsv" in options.extras else None
    if ablation is not None and not sections.counts_agree(tables["recall"], ablation):
        ablation = None
    cases = [line for line in lines if line["kind"] == "case"]
    count_rows, share_rows = sections.count_rows(tables["counts"], options.thresholds)
    split_shares = {set_name: sections.lesion_shares(tables["splits"], set_name) for set_name in options.thresholds}
    return load_template("index.html.j2").render(
        source=SOURCES.get(options.source, "a cohort given by a manifest"),
        engines=options.engines,
        sets=options.thresholds,
        first=name,
        others=other_sets,
        thresholds=version_info["thresholds"],
        counts={row["count"]: row for row in count_rows},
        headlines=count_rows,
        asked=share_rows,
        funnels={set_name: sections.funnel_steps(tables["funnel"], set_name) for set_name in options.thresholds},
        left_out=sections.exclusion_details(ledgers, MAX_DETAILS),
        corrections=sections.correction_counts(tables["corrected"], MAX_DETAILS),
        stops=sections.rank_losses(tables["funnel"], name),
        shares={name: table.to_dicts() for name, table in split_shares.items()},
        share_most={name: _max_share(table) for name, table in split_shares.items()},
        splits={set_name: sections.split_rows(tables["splits"], set_name) for set_name in options.thresholds},
        recall_columns=sections.RECALL_COLUMNS,
        recall=sections.recall_rows(tables["recall"], ablation, beside_paper=not synthetic),
        recall_notes=[] if synthetic else list(filter(None, tables["recall"]["note"].unique(maintain_order=True))),
        synthetic=synthetic,
        synthetic_mark=SYNTHETIC_MARK if synthetic else "",
        split_names=SPLITS,
        reading=sections.reading_outcomes(tables["reading"]),
        words=sections.unknown_words(tables["words"]),
        ablation=_ablation_section(ablation, options.extras, embed),
        gallery=_group_cases(cases, options.thresholds),
        calibration=[line for line in lines if line["kind"] == "calibration"],
        picture=picture,
        truth={} if tables["truth"] is None else {
            set_name: sections.truth_rows(tables["truth"], set_name) for set_name in options.thresholds
        },
        lesions=LESIONS,
        evaluation=_evaluation_section(options.extras, test, embed),
        semisyn=_semisyn_section(options.extras, embed),
        medground=_medground_section(options.extras, embed),
        radvlm=radvlm.find_section(options.extras, embed),
        stages=version_info["stages"],
        weights=version_info["weights"],
        pins=version_info["pins"],
        colours={"ours": BLUE, "paper": GREY, "lost": ORANGE, "kept": KEPT, "dropped": DROPPED},
        lesion_colours=LESION_COLOURS,
    )  # fmt: skip


def _max_share(shares: pl.DataFrame) -> float:
    return max(shares["ours"].max(), shares["paper"].max())


def _group_cases(cases: Sequence[dict], sets: Sequence[str]) -> dict[str, dict[str, list[dict]]]:
    """Return {threshold set: {lesion type: cases}}, with an empty list for a type without a case."""
    return {
        name: {lesion: [c for c in cases if (c["thresholds"], c["lesion"]) == (name, lesion)] for lesion in LESIONS}
        for name in sets
    }


def _ablation_section(
    table: pl.DataFrame | None, extras: Mapping[str, str], embed: Callable[[str], str]
) -> dict | None:
    if table is None:
        return None
    average = table.filter(pl.col("lesion") == "average").sort("recall", descending=True, nulls_last=True)
    best = average.row(0, named=True)
    words = (
        f"Of {len(average)} points, {best['thresholds']} has the highest average recall: "
        f"{format_number(best['recall'], 1)} %, with {format_number(best['yield'])} findings with a grounded mask"
    )
    figures = [
        {"src": embed(f"{ABLATION}{file}"), "alt": f"{caption}. {words}.", "what": caption}
        for file, caption in (
            ("curves.png", "Recall and yield of each lesion type against each varied threshold"),
            ("map.png", "Recall over the first two varied thresholds"),
        )
        if f"{ABLATION}{file}" in extras
    ]
    return {"words": words, "figures": figures}


def _evaluation_section(extras: Mapping[str, str], test: Mapping[str, str], embed: Callable[[str], str]) -> dict | None:
    """Return rows, figures and ``stale`` (runs scored on other pairs than the current ones); None without scores."""
    if f"{EVALUATION}comparison.tsv" not in extras:
        return None
    table = read_table(f"{EVALUATION}comparison.tsv")
    rows = sections.evaluation_rows(table)
    ours = "; ".join(f"{r['who']}: gIoU {r['cells'][0][0]}, cIoU {r['cells'][1][0]}, N-Acc {r['cells'][2][0]}, "
                     f"answers right (strict) {r['cells'][3][0]}"
                     for r in rows if r["source"] == "ours")  # fmt: skip
    current = [_read_dataset_pairs(path) for path in test.values()]
    scored = [path for path in extras if path.startswith(EVALUATION) and path.endswith("/pairs.parquet")]
    stale = [Path(path).parent.name for path in scored if _read_scored_pairs(path) not in current]
    figures = [
        {"src": embed(path), "alt": f"{caption}. In total, {ours}.", "what": caption}
        for path, caption in (
            (
                f"{EVALUATION}masks.png",
                "Masks per lesion type, with intervals; diamonds: the paper's, of its test split",
            ),
            (
                f"{EVALUATION}text.png",
                "Answers per type of instruction, with intervals; diamonds: the paper's, of its test split",
            ),
        )
        if path in extras
    ]
    figures += [
        {"src": embed(path), "alt": f"{caption}.", "what": caption}
        for path in extras
        if path.startswith("results/training/")
        for caption in [f"Course of the training {Path(path).parent.name}: losses of its updates, and scores by epoch"]
    ]
    changes = f"{EVALUATION}paraphrases.tsv"
    wording = sections.wording_rows(read_table(changes)) if changes in extras else []
    return {"rows": rows, "figures": figures, "stale": stale, "wording": wording}


def _semisyn_section(extras: Mapping[str, str], embed: Callable[[str], str]) -> dict | None:
    """Return the healthy pool's funnel, the rows of the jobs, and the sheet; None unless all their files exist."""
    names = ("healthy/funnel.tsv", "dataset/conservation.tsv", "dataset/sheet.jpg")
    funnel, jobs, sheet = (f"{SEMISYN}{name}" for name in names)
    if not {funnel, jobs, sheet} <= extras.keys():
        return None
    tables = {name: read_table(path).to_dicts() for name, path in (("funnel", funnel), ("jobs", jobs))}
    num_exported = sum(row["exported"] for row in tables["jobs"] if row["finding"] != "all")
    return tables | {"sheet": embed(sheet), "images": num_exported}


def _medground_section(extras: Mapping[str, str], embed: Callable[[str], str]) -> dict | None:
    """Return pass rates, statistics, the chart of language and the gallery; None unless all their files exist.

    Scores and the paper's tables are empty until they exist.
    """
    names = (
        "verification/passrate.tsv",
        "dataset/statistics.tsv",
        "dataset/language.png",
        "dataset/gallery/gallery.jsonl",
    )
    rates, statistics, chart, gallery = (f"{MEDGROUND}{name}" for name in names)
    if not {rates, statistics, chart, gallery} <= extras.keys():
        return None
    cases = [line | {"src": embed(str(Path(gallery).parent / line["file"]))} for line in read_lines(gallery)]
    passed = read_table(rates).filter(split="all").to_dicts()
    counts = read_table(statistics).filter(pl.col("queries") > 0).to_dicts()
    kinds = {"accepted": "Accepted queries", "rejected": "Rejected queries", "pair": "Sensitivity pairs"}
    cases_by_title = {title: [case for case in cases if case["kind"] == kind] for kind, title in kinds.items()}
    content = {"passed": passed, "statistics": counts, "chart": embed(chart), "gallery": cases_by_title}
    content |= {"scores": [], "bars": "", "paper": {}}
    paper_path, scores, bars = (
        f"{MEDGROUND}{name}" for name in ("dataset/paper.tsv", "scoring/comparison.tsv", "scoring/scores.png")
    )
    if paper_path in extras:
        rows = read_table(paper_path).to_dicts()
        content["paper"] = {
            name: [row for row in rows if row["table"] == name] for name in ("Table 1", "Table 2", "Table 5", "Table 6")
        }
    if {scores, bars} <= extras.keys():
        content |= {"scores": read_table(scores).to_dicts(), "bars": embed(bars)}
    return content


def _read_dataset_pairs(path: str) -> set[tuple[str, str, str, str]]:
    return {
        (row["pair_id"], row["target"], row["type"], "positive" if row["seg"] else "negative")
        for row in read_lines(path)
    }


def _read_scored_pairs(path: str) -> set[tuple]:
    return set(read_table(path).select("pair_id", "target", "type", "polarity").iter_rows())

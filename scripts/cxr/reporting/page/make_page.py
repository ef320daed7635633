"""The page stage: write one page of results from the tables and images of a run."""

from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.tables import read_lines, read_table, write_table
from cxr.plotting.encoding import image_file_url
from cxr.reporting.page import render
from cxr.reporting.page.render import PageOptions

RESOURCE_FILES = ("page", "organs/lite.onnx", "organs/upright.onnx", "anomaly/lite.onnx", "boxes/lite.onnx", "../envs")


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
    version_info = render.collect_versions(shards, reports, manifests or [], options.engines)
    write_table(versions_table, render.tabulate_versions(version_info), render.VERSIONS)
    page = render.render_page(
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

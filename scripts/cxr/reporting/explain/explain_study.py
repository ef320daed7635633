"""Explain one study: write a text for the screen and a page with pictures, from the files under results/."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError
from cxr.reporting.explain.blocks import render_html, render_text
from cxr.reporting.explain.story import describe_study
from cxr.reporting.explain.study import read_study


@dataclass(frozen=True)
class ExplainOptions:
    """The study, the digest of the results ("" without a study), and the resolution of the images."""

    study: str
    results_digest: str
    dpi: int


def explain(results: str | Path, study: str, thresholds: Sequence[str], dpi: int) -> tuple[str, str]:
    """Return the text and the HTML page on a study; no ``thresholds`` means every set that has masks.

    Raises UserError for an unknown study or set.
    """
    blocks = describe_study(read_study(Path(results), study, thresholds), dpi)
    return render_text(blocks), render_html(f"Study {study}", blocks)


def run(*, page: str, text: str, options: ExplainOptions, results: str = "results") -> None:
    """Write the page and the text of a study under every threshold set that has masks, and print the text."""
    if not options.results_digest:
        raise UserError("explain needs a study: snakemake explain --config study=<study_id>")
    text_content, page_content = explain(results, options.study, (), options.dpi)
    for path, content in ((page, page_content), (text, text_content)):
        with atomic_file(path) as temporary:
            temporary.write_text(content, encoding="utf-8")
    sys.stdout.write(text_content)

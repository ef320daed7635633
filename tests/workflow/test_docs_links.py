"""Every link of a Markdown file to the repository leads to a file and to a heading of it."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT
from doc_commands import pages

FOLDERS = ("benchmarks", "config", "docs", "examples", "resources", "scripts", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]*)\)")


def links(page: Path) -> list[str]:
    found = _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


@cache
def anchors(page: Path) -> set[str]:
    """Return the names that a browser of Markdown gives a page's headings.

    A repeated heading has none: its name holds a number, which changes when a heading is added above it.
    """
    names: Counter[str] = Counter()
    for title in re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        names[name] += 1
    return {name for name, number in names.items() if number == 1}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert path.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(path), link


def test_every_page_of_docs_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    missing = {page for page in pages() if page.parent != ROOT} - {index} - named
    assert not missing

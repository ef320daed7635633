"""Every link inside the repository, of README, docs and the model cards, leads to a file and to a heading of it."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT
from doc_commands import pages

PAGES = [*pages(), *sorted((ROOT / "resources").rglob("*.md"))]
_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]*)\)")


def links(page: Path) -> list[str]:
    found = _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


@cache
def anchors(page: Path) -> set[str]:
    """Return the names that a browser of Markdown gives a page's headings; a repeated one has its number behind it."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


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

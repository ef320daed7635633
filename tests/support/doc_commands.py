"""Collect the commands in README and docs, as a person would copy them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("snakemake", "make", "python", ".venv/bin/python")
_FENCE = re.compile(r"^[ \t]*```\w*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Command:
    """A command of a page: its words, without a comment behind it."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def pages() -> list[Path]:
    """Return README and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands() -> list[Command]:
    """Return every command of the pages, in blocks and in the running text, each once a page."""
    found = {}
    for page in pages():
        text = page.read_text(encoding="utf-8")
        blocks = "\n".join(_FENCE.findall(text)).replace("\\\n", " ")
        spans = _SPAN.findall(_FENCE.sub("", text))
        for line in [*blocks.splitlines(), *spans]:
            if words := _words(line):
                found[Command(str(page.relative_to(ROOT)), words)] = None
    return list(found)


def _words(line: str) -> tuple[str, ...]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # half a quotation is prose
        return ()
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # settings of the environment
        words = words[1:]
    named = len(words) > 1 or (words and words[0] in ("snakemake",))
    return tuple(words) if named and words[0] in PROGRAMS else ()

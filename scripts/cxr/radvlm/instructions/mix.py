"""The rows of a mix: tasks by source, with passes and limits; and the published mixes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cxr.base.resources import load_resource
from cxr.radvlm.samples import TASKS

RESOURCE_FILES = ("radvlm/mixes.yaml",)
OWN, PAPER, CODE, PAPER_PLUS_ILS = ("own", "paper", "code", "paper_plus_ils")
TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class MixRow:
    """A task of a source. repeat: passes in train; most, tested: maximum units in train and in test, 0 for all;
    splits: splits of the source used for training; paper, code: (pairs, passes, evaluation) of the published mixes;
    used: True if the source is configured.
    """

    task: str
    source: str
    repeat: int
    most: int = 0
    tested: int = 0
    splits: tuple[str, ...] = (TRAIN,)
    paper: tuple | None = None
    code: tuple | None = None
    used: bool = True

    @property
    def limits(self) -> dict[str, int]:
        """{split: maximum number of units}, for splits with a limit."""
        return {split: most for split, most in ((TRAIN, self.most), (TEST, self.tested)) if most}

    def split_of(self, source_split: str) -> str:
        """Return the split of the mix that an image with this split of the source belongs to."""
        return TRAIN if source_split in self.splits else source_split


def _published_rows(preset: str, formats: Mapping[str, str]) -> list[MixRow]:
    """Return the rows of a published mix: one per configured source of a format, or one unused row if there is none."""
    resource, rows = load_resource(RESOURCE_FILES[0]), []
    for entry in resource["published"]:
        paper, code = tuple(entry["paper"]), tuple(entry["code"])
        pairs, repeat, evaluated = code if preset == CODE else paper
        splits = tuple(resource["training_splits"].get(entry["format"], (TRAIN,)))
        row = MixRow(
            entry["task"], entry["format"], repeat, pairs if entry.get("most") else 0,
            (evaluated or 0) if entry.get("tested") else 0, splits, paper, code,
        )  # fmt: skip
        sources = [source for source, kind in formats.items() if kind == entry["format"]]
        rows += [replace(row, source=source) for source in sources] or [replace(row, used=False)]
    return rows


def _own_rows(name: str, formats: Mapping[str, str]) -> list[MixRow]:
    entries = load_resource(RESOURCE_FILES[0])[name]
    return [MixRow(entry["task"], OWN, entry["repeat"], used=OWN in formats) for entry in entries]


def mix_rows(mix: Mapping, formats: Mapping[str, str]) -> list[MixRow]:
    """Return a mix's rows in task order; its tasks {task: {source: {repeat, most}}} override the preset."""
    preset = mix["preset"]
    rows = (
        _own_rows("own", formats) + _own_rows("ours", formats) if preset == OWN
        else _published_rows(preset, formats) + (_own_rows("ours", formats) if preset == PAPER_PLUS_ILS else [])
    )  # fmt: skip
    row_by_key = {(row.task, row.source): row for row in rows}
    for task, sources in mix["tasks"].items():
        for source, override in sources.items():
            before = row_by_key.get((task, source), MixRow(task, source, 1, used=source in formats))
            most = before.most if override["most"] is None else override["most"]
            row_by_key[task, source] = replace(before, repeat=override["repeat"], most=most)
    order = list(row_by_key.values())
    return sorted((row for row in order if row.repeat), key=lambda row: TASKS.index(row.task))


def explain_unused_sources(mixes: Mapping[str, Iterable[MixRow]], sources: Iterable[str]) -> str:
    """Return a sentence on the sources in use that no mix reads, "" if each is read; the cohort may go unread."""
    read_sources = {row.source for rows in mixes.values() for row in rows if row.used}
    unread_sources = [source for source in sources if source not in {OWN, *read_sources}]
    if not unread_sources:
        return ""
    return (
        f"radvlm.sources.use names {', '.join(unread_sources)}, which no mix reads: set "
        f"radvlm.instructions.mixes.{next(iter(mixes))}.preset to paper, name tasks of it in that mix, or leave it out "
        "of use"
    )


def rows_from_options(row_options: list[Mapping]) -> list[MixRow]:
    """Convert a rule's params, which are dicts with lists for tuples, to mix rows."""
    return [
        MixRow(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
        for fields in row_options
    ]

"""The rows of a mix, one per task and source, with passes and limits; and the rows of the published mixes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cxr.base.resources import load_resource
from cxr.radvlm.samples import TASKS

RESOURCE_FILES = ("radvlm/mixes.yaml",)
OWN, PAPER, CODE, PAPER_PLUS_ILS = ("own", "paper", "code", "paper_plus_ils")
TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class MixRow:
    """One task of one source in a mix. A unit is a question about an image, without its repeats."""

    task: str
    source: str
    repeat: int  # number of passes in train
    most: int = 0  # maximum number of units in train; 0: no limit
    tested: int = 0  # maximum number of units in test; 0: no limit
    splits: tuple[str, ...] = (TRAIN,)  # splits of the source that are used for training
    paper: tuple | None = None  # (pairs, passes, evaluation pairs) in the paper's mix
    code: tuple | None = None  # (pairs, passes, evaluation pairs) in the authors' code
    used: bool = True  # whether a source of the format is configured

    @property
    def limits(self) -> dict[str, int]:
        """{split: maximum number of questions}, for splits with a limit."""
        return {split: most for split, most in ((TRAIN, self.most), (TEST, self.tested)) if most}

    def split_of(self, source_split: str) -> str:
        """Return the split of the mix in which images of the source's split ``source_split`` are used."""
        return TRAIN if source_split in self.splits else source_split


def _published_rows(preset: str, formats: Mapping[str, str]) -> list[MixRow]:
    """Return the rows of a published mix, one per configured source. If a format has no source, its row is unused."""
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
    """Return the rows of a mix in task order. ``mix``: its settings, whose ``tasks`` {task: {source: {repeat, most}}}
    override the preset; ``formats``: {configured source: format}."""
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
    """Return a message about sources in use that no mix reads, or "" if there are none. The cohort is ignored."""
    read_sources = {row.source for rows in mixes.values() for row in rows if row.used}
    unread_sources = [source for source in sources if source not in {OWN, *read_sources}]
    if not unread_sources:
        return ""
    return (
        f"radvlm.sources.use names {', '.join(unread_sources)}, which no mix reads: set "
        f"radvlm.instructions.mixes.{next(iter(mixes))}.preset to paper, add tasks of these sources to that mix, or "
        "remove them from radvlm.sources.use"
    )


def rows_from_options(row_options: list[Mapping]) -> list[MixRow]:
    """Return mix rows from the params of a workflow rule: dicts in which tuples have become lists."""
    return [
        MixRow(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
        for fields in row_options
    ]

"""Write the samples of one source of a mix: every task that the mix asks of it, all splits in one file."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from cxr.base.columns import schema
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.instructions.record import Record
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.absent import Absence, chosen
from cxr.radvlm.instructions.columns import INDEX, LEFT
from cxr.radvlm.instructions.given import Given, areas_of, sizes_of
from cxr.radvlm.instructions.mix import TRAIN, Row, as_rows
from cxr.radvlm.instructions.tasks import How, Unit
from cxr.radvlm.instructions.wordings import turn
from cxr.radvlm.samples import line_of, record

MAKERS: dict[str, Callable[[Given, How], Iterator[Unit]]] = {
    "report_generation": tasks.report_generation,
    "classification": tasks.classification,
    "anatomical_grounding": tasks.anatomical_grounding,
    "abnormality_grounding": tasks.abnormality_grounding,
    "abnormality_detection": tasks.abnormality_detection,
    "phrase_grounding": tasks.phrase_grounding,
    "conversation": partial(tasks.conversations, grounded=False),
    "conversation_grounded": partial(tasks.conversations, grounded=True),
    "ils_grounding": partial(tasks.ils, form="boxes"),
    "ils_segmentation": partial(tasks.ils, form="seg"),
}
"""{task: what yields its units}; absent_grounding follows the lines of abnormality_grounding."""
ABSENT, PRESENT = "absent_grounding", "abnormality_grounding"
OF_TASKS = {
    "label": ("classification", ABSENT), "region": ("anatomical_grounding",),
    "box": (PRESENT, "abnormality_detection"), "phrase": ("phrase_grounding", "conversation_grounded"),
}  # fmt: skip
"""{kind of facts: tasks that ask them}."""


@dataclass(frozen=True)
class PartOptions:
    """Settings of the stage for one source: its name, its rows (builtins), regions, label_case, absent_share, smallest
    (least part of a mask that has a box, in frame pixels), seed.
    """

    source: str
    rows: list
    regions: str
    label_case: str
    absent_share: float
    smallest: int
    seed: int


class Writer:
    """Makes the records of units, and notes what was used and what was left out."""

    def __init__(self, given: Given, options: PartOptions):
        self.given, self.options = given, options
        self.index: list[tuple] = []
        self.used: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.present: Counter[tuple[str, str]] = Counter()
        self.how = How(options.regions, options.label_case, options.seed, self._note)

    def _note(self, reason: str, ids: Sequence[str]) -> None:
        self.reasons.update(dict.fromkeys(ids, reason))

    def records(self, rows: Sequence[Row]) -> Iterator[Record]:
        """Yield the samples of all rows."""
        for row in rows:
            if row.task == ABSENT:
                yield from self._of(row, self._absent)
            else:
                yield from self._of(row, lambda row=row: MAKERS[row.task](self.given, self.how))

    def _of(self, row: Row, units: Callable[[], Iterable[Unit]]) -> Iterator[Record]:
        kept = {
            split: self._drawn(row, split, units, most) for split, most in (("train", row.most), ("test", row.tested))
        }
        for unit in units():
            image = self.given.images[unit.image_id]
            split = TRAIN if image["split"] in row.splits else image["split"]
            if (some := kept.get(split)) is not None and unit.image_id not in some:
                continue
            passes = row.repeat if split == TRAIN or not unit.again else 1
            for number in range(passes):
                if (part := unit.part(number)) is None:
                    break
                one = self._record(row, unit, part, image | {"split": split}, number)
                new = number == 0 or not unit.again
                self.index.append((
                    one.sample_id, one.task, one.source, one.split, image["split"], one.subject_id, one.image_id,
                    image["view"], unit.key, number, len(part.facts) if new else 0,
                ))  # fmt: skip
                self.used.update(part.facts)
                if row.task == PRESENT:
                    self.present[image["split"], part.asked or ""] += 1
                yield one

    def _drawn(self, row: Row, split: str, units: Callable[[], Iterable[Unit]], most: int) -> set[str] | None:
        """Return the images of a split that a limit leaves, drawn by a stable hash; None without a limit."""
        if not most:
            return None
        found: Counter[str] = Counter()
        for unit in units():
            given = self.given.images[unit.image_id]["split"]
            found[unit.image_id] += (TRAIN if given in row.splits else given) == split
        order = sorted(found, key=lambda name: stable_hash(self.options.seed, row.task, row.source, name))
        kept, count = set(), 0
        for image_id in order:
            if count < most:
                kept.add(image_id)
                count += found[image_id]
        return kept

    def _record(self, row: Row, unit: Unit, part: tasks.Part, image: Mapping, number: int) -> Record:
        drawn = (self.options.seed, row.source, unit.key)
        turns = part.given or (turn(row.task, part.kind, drawn, number, part.slots),)
        name = f"r{stable_hash(row.task, row.source, unit.key, number):016x}"
        return record(
            name, row.task, image, turns, boxes=part.boxes, labels=self.given.present.get(unit.image_id),
            mask_ids=part.mask_ids, facts=part.facts, engine=part.engine, number=number, asked=part.asked,
        )  # fmt: skip

    def _absent(self) -> list[Unit]:
        """Return the questions for absent findings."""
        images = self.given.images
        pool = ((images[one[0]]["split"], one) for one in tasks.absent(self.given))
        found = chosen(pool, self.present, self.options.absent_share, self._rank)
        return [tasks.absent_unit(self.how, *one) for one in found]

    def _rank(self, one: Absence) -> int:
        return stable_hash(self.options.seed, "absent", self.given.source, one[0], one[1])


def left_table(
    given: Given, table: pl.DataFrame, writer: Writer, rows: Sequence[Row], gone: Mapping[str, str],
    offered: Sequence[Mapping],
) -> pl.DataFrame:  # fmt: skip
    """Return what became of the facts (all of the source: ``table``), texts, conversations and pairs (``offered``).
    ``gone``: {image: why it left}.
    """
    asked = {row.task for row in rows}
    counted: Counter[tuple[str, str]] = Counter()
    for fact_id, image_id, kind, reader in table.select("fact_id", "image_id", "kind", "reader").iter_rows():
        if fact_id in writer.used:
            outcome = "used"
        elif reader is not None:
            outcome = "reader"
        elif image_id in gone:
            outcome = gone[image_id]
        elif fact_id in writer.reasons:
            outcome = writer.reasons[fact_id]
        else:
            outcome = "not_drawn" if asked & set(OF_TASKS[kind]) else "not_in_mix"
        counted[kind, outcome] += 1
    lines = Counter(row[1] for row in writer.index if row[9] == 0)
    pairs = len({row[8] for row in writer.index if row[1].startswith("ils_")})
    talks = lines["conversation"] + lines["conversation_grounded"]
    for what, images, used in (
        ("texts", [image for line in given.texts for image in line["image_ids"]], lines["report_generation"]),
        ("conversations", [line["image_id"] for line in given.conversations], talks),
        ("pairs", [line["image_id"] for line in offered], pairs),
    ):
        left = Counter(gone.get(image, "no_image") for image in images if image not in given.images)
        left["used"], left["not_drawn"] = used, len(images) - used - left.total()
        for outcome, number in left.items():
            counted[what, outcome] += number
    for (what, _), number in list(counted.items()):
        counted[what, "all"] += number
    found = [(given.source, what, outcome, number) for (what, outcome), number in sorted(counted.items()) if number]
    return pl.DataFrame(found, schema=schema(LEFT), orient="row")


def run(
    *, images: str, facts: str, texts: str, phrases: str, conflicts: str, frames: Sequence[str], lines_out: str,
    index: str, left: str, options: PartOptions, conversations: Sequence[str] = (), pairs: Sequence[str] = (),
    masks: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the lines of a source, a table that says what each is, and what became of its facts.

    ``frames``: shards that show its images; ``conversations``, ``pairs``: files of lines, where there are some;
    ``masks``: shards of the pairs' masks.
    """
    rows = [row for row in as_rows(options.rows) if row.used]
    known, table = read_table(images), read_table(facts)
    sizes = sizes_of(known, frames)
    torn = set(read_table(conflicts).filter(source=options.source)["image_id"])
    gone = {
        one: "split_conflict" if one in torn else "no_image"
        for one in known["image_id"]
        if one in torn or one not in sizes
    }
    held = {row["image_id"]: row for row in known.iter_rows(named=True) if row["image_id"] not in gone}
    offered = [line for path in pairs for line in read_lines(path)]
    asked = [line for line in offered if line["image_id"] in held]
    given = Given(
        options.source, held, table, sizes, list(read_lines(texts)), list(read_lines(phrases)),
        [line for path in conversations for line in read_lines(path)], asked,
        areas_of(asked, frames, masks, options.smallest) if masks else {},
    )  # fmt: skip
    writer = Writer(given, options)
    write_lines(lines_out, map(line_of, writer.records(rows)))
    write_table(index, pl.DataFrame(writer.index, schema=schema(INDEX), orient="row"), INDEX)
    write_table(left, left_table(given, table, writer, rows, gone, offered), LEFT)
    log.info("%s: %d lines of %d tasks", options.source, len(writer.index), len(rows))

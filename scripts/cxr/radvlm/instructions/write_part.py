"""Write the samples of one source of a mix: every task that the mix asks of it, all splits in one file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import cv2
import polars as pl

from cxr.base.columns import schema
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.instructions.record import Record
from cxr.radvlm.instructions import left as leaving
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.blocks import Blocks
from cxr.radvlm.instructions.columns import INDEX, LEFT
from cxr.radvlm.instructions.draws import Draws, drawn
from cxr.radvlm.instructions.given import Given, areas_of, sizes_of
from cxr.radvlm.instructions.mix import TRAIN, Row, as_rows
from cxr.radvlm.instructions.tasks import ABSENT, LINES, MAKERS, How, Unit
from cxr.radvlm.instructions.wordings import turn
from cxr.radvlm.samples import line_of, record


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
    """Makes the records of a source block by block, and notes what was used and what was left out.

    index: rows of the index, a table a block; left: what became of the blocks.
    """

    def __init__(
        self, options: PartOptions, rows: Sequence[Row], draws: Draws | None = None,
        pairs: frozenset[str] = frozenset(), gone: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.options, self.rows, self.draws, self.gone = options, rows, draws or Draws(), gone or {}
        self.index: list[pl.DataFrame] = []
        self.left: Counter[tuple[str, str]] = Counter()
        self.how = How(options.regions, options.label_case, options.seed, self._note, pairs)
        self._block = leaving.Block()

    def _note(self, reason: str, ids: Sequence[str]) -> None:
        self._block.reasons.update(dict.fromkeys(ids, reason))

    def records(self, given: Given) -> Iterator[Record]:
        """Yield the samples of a block, of all rows."""
        self._block, index = leaving.Block(), []
        for row in self.rows:
            units = self._absent(given) if row.task == ABSENT else MAKERS[row.task](given, self.how)
            for unit in units:
                yield from self._of(row, given, unit, index)
        self.index.append(pl.DataFrame(index, schema=schema(INDEX), orient="row"))
        asked = {row.task for row in self.rows}
        self.left += leaving.counted(given, self._block, asked, self.gone, self.how.pairs)

    def _of(self, row: Row, given: Given, unit: Unit, index: list[tuple]) -> Iterator[Record]:
        image = given.images[unit.image_id]
        split = row.split_of(image["split"])
        counted = (LINES.get(row.task, ""), unit.key)
        if not self.draws.leaves(row.task, split, unit.image_id):
            self._block.passed.add(counted)
            return
        passes = row.repeat if split == TRAIN or not unit.again else 1
        self._block.asked.add(counted)
        for number in range(passes):
            if (part := unit.part(number)) is None:
                break
            one = self._record(row, given, unit, part, image | {"split": split}, number)
            new = number == 0 or not unit.again
            index.append((
                one.sample_id, one.task, one.source, one.split, image["split"], one.subject_id, one.image_id,
                image["view"], unit.key, number, len(part.facts) if new else 0,
            ))  # fmt: skip
            self._block.used.update(part.facts)
            yield one

    def _absent(self, given: Given) -> Iterator[Unit]:
        """Yield the questions for absent findings."""
        asked = self.draws.absent.filter(pl.col("image_id").is_in(list(given.images)))
        wanted = set(asked.select("image_id", "name").iter_rows())
        for image_id, name, facts in tasks.absent(given):
            if (image_id, name) in wanted:
                yield tasks.absent_unit(self.how, image_id, name, facts)

    def _record(self, row: Row, given: Given, unit: Unit, part: tasks.Part, image: Mapping, number: int) -> Record:
        drawn = (self.options.seed, row.source, unit.key)
        turns = part.given or (turn(row.task, part.kind, drawn, number, part.slots),)
        name = f"r{stable_hash(row.task, row.source, unit.key, number):016x}"
        return record(
            name, row.task, image, turns, boxes=part.boxes, labels=given.present.get(unit.image_id),
            mask_ids=part.mask_ids, facts=part.facts, engine=part.engine, number=number, asked=part.asked,
        )  # fmt: skip


def run(
    *, images: str, facts: str, texts: str, phrases: str, conflicts: str, frames: Sequence[str], lines_out: str,
    index: str, left: str, options: PartOptions, conversations: Sequence[str] = (), pairs: Sequence[str] = (),
    masks: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the lines of a source, a table that says what each is, and what became of its facts.

    ``frames``: shards that show its images; ``conversations``, ``pairs``: files of lines, where there are some;
    ``masks``: shards of the pairs' masks.
    """
    cv2.setNumThreads(1)
    rows = [row for row in as_rows(options.rows) if row.used]
    known = read_table(images)
    sizes = sizes_of(known, frames)
    torn = set(read_table(conflicts).filter(source=options.source)["image_id"])
    gone = {
        one: "split_conflict" if one in torn else "no_image"
        for one in known["image_id"]
        if one in torn or one not in sizes
    }
    held = known.filter(~pl.col("image_id").is_in(list(gone)))
    shown = set(held["image_id"])
    offered = (line for path in pairs for line in read_lines(path) if line["image_id"] in shown)
    told = [{name: line[name] for name in ("pair_id", "split", "seg", "mask_id", "image_id")} for line in offered]
    asked = tasks.balanced(told, options.seed)
    areas = areas_of(told, frames, masks, options.smallest) if masks else {}
    lines = {"texts": [texts], "phrases": [phrases], "conversations": conversations, "pairs": pairs}
    with Blocks(options.source, held, facts, sizes, lines, areas) as blocks:
        how = How(options.regions, options.label_case, options.seed, pairs=asked)
        writer = Writer(options, rows, drawn(blocks, rows, how, options.absent_share), asked, gone)
        made = (line_of(one) for given in blocks.each() for one in writer.records(given))
        write_lines(lines_out, made)
        write_table(index, pl.concat(writer.index), INDEX)
        write_table(left, leaving.left_table(blocks, writer.left, gone), LEFT)
        log.info("%s: %d lines of %d tasks", options.source, sum(map(len, writer.index)), len(rows))

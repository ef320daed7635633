"""Write the samples of one source of a mix: all tasks and splits in one file."""

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
from cxr.radvlm.instructions import outcomes, tasks
from cxr.radvlm.instructions.columns import INDEX, OUTCOMES
from cxr.radvlm.instructions.draws import SampleDraws, draw_samples
from cxr.radvlm.instructions.mix import TRAIN, MixRow, rows_from_options
from cxr.radvlm.instructions.source_block import Blocks, SourceBlock, read_mask_boxes, read_sizes
from cxr.radvlm.instructions.tasks import ABSENT, LINES_BY_TASK, UNITS_BY_TASK, TaskOptions, Unit
from cxr.radvlm.instructions.wordings import word_turn
from cxr.radvlm.samples import make_sample, sample_line


@dataclass(frozen=True)
class PartOptions:
    """Settings for one source. rows: its mix rows as builtins; smallest: least mask part with a box (frame pixels)."""

    source: str
    rows: list
    smallest: int
    seed: int


class SampleWriter:
    """Builds the samples of a source block by block and counts outcomes.

    index: one table of INDEX rows per block; num_by_outcome: {(kind, outcome): number}.
    """

    def __init__(
        self, options: PartOptions, rows: Sequence[MixRow], draws: SampleDraws | None = None,
        pairs: frozenset[str] = frozenset(), reason_by_image: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.options, self.rows, self.draws = options, rows, draws or SampleDraws()
        self.reason_by_image = reason_by_image or {}
        self.index: list[pl.DataFrame] = []
        self.num_by_outcome: Counter[tuple[str, str]] = Counter()
        self.task_options = TaskOptions(options.seed, self._note, pairs)
        self._block = outcomes.BlockOutcome()

    def _note(self, reason: str, ids: Sequence[str]) -> None:
        self._block.reasons.update(dict.fromkeys(ids, reason))

    def records(self, inputs: SourceBlock) -> Iterator[Record]:
        """Yield the samples of a block for all mix rows."""
        self._block, index = outcomes.BlockOutcome(), []
        for row in self.rows:
            units = self._absent(inputs) if row.task == ABSENT else UNITS_BY_TASK[row.task](inputs, self.task_options)
            for unit in units:
                yield from self._row_records(row, inputs, unit, index)
        self.index.append(pl.DataFrame(index, schema=schema(INDEX), orient="row"))
        task_names = {row.task for row in self.rows}
        self.num_by_outcome += outcomes.count_outcomes(
            inputs, self._block, task_names, self.reason_by_image, self.task_options.pairs
        )

    def _row_records(self, row: MixRow, inputs: SourceBlock, unit: Unit, index: list[tuple]) -> Iterator[Record]:
        image = inputs.images[unit.image_id]
        split = row.split_of(image["split"])
        unit_key = (LINES_BY_TASK.get(row.task, ""), unit.key)
        if not self.draws.keeps(row.task, split, unit.image_id):
            self._block.not_drawn.add(unit_key)
            return
        passes = row.repeat if split == TRAIN or not unit.repeats_part else 1
        self._block.used_units.add(unit_key)
        for number in range(passes):
            if (part := unit.part(number)) is None:
                break
            sample = self._record(row, inputs, unit, part, image | {"split": split}, number)
            new = number == 0 or not unit.repeats_part
            index.append((
                sample.sample_id, sample.task, sample.source, sample.split, image["split"], sample.subject_id,
                sample.image_id, image["view"], unit.key, number, len(part.facts) if new else 0,
            ))  # fmt: skip
            self._block.used.update(part.facts)
            yield sample

    def _absent(self, inputs: SourceBlock) -> Iterator[Unit]:
        """Yield the units of the selected absences."""
        absences = self.draws.absent.filter(pl.col("image_id").is_in(list(inputs.images)))
        wanted_pairs = set(absences.select("image_id", "name").iter_rows())
        for image_id, name, facts in tasks.find_absences(inputs):
            if (image_id, name) in wanted_pairs:
                yield tasks.absent_unit(self.task_options, image_id, name, facts)

    def _record(
        self, row: MixRow, inputs: SourceBlock, unit: Unit, part: tasks.Part, image: Mapping, number: int
    ) -> Record:
        seed_parts = (self.options.seed, row.source, unit.key)
        turns = part.turns or (word_turn(row.task, part.kind, seed_parts, number, part.slots),)
        name = f"r{stable_hash(row.task, row.source, unit.key, number):016x}"
        return make_sample(
            name, row.task, image, turns, boxes=part.boxes, labels=inputs.present.get(unit.image_id),
            mask_ids=part.mask_ids, facts=part.facts, engine=part.engine, number=number, target=part.target,
        )  # fmt: skip


def run(
    *, images: str, facts: str, texts: str, phrases: str, conflicts: str, frames: Sequence[str], lines_out: str,
    index: str, excluded: str, options: PartOptions, conversations: Sequence[str] = (), pairs: Sequence[str] = (),
    masks: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the lines of a source, their index, and the outcomes of its records.

    ``frames``: frame shards; ``conversations``, ``pairs``: files of lines, if any; ``masks``: mask shards of the pairs.
    """
    cv2.setNumThreads(1)
    rows = [row for row in rows_from_options(options.rows) if row.used]
    image_table = read_table(images)
    sizes = read_sizes(image_table, frames)
    conflict_ids = set(read_table(conflicts).filter(source=options.source)["image_id"])
    reason_by_image = {
        image_id: "split_conflict" if image_id in conflict_ids else "no_image"
        for image_id in image_table["image_id"]
        if image_id in conflict_ids or image_id not in sizes
    }
    usable_images = image_table.filter(~pl.col("image_id").is_in(list(reason_by_image)))
    usable_ids = set(usable_images["image_id"])
    offered = (line for path in pairs for line in read_lines(path) if line["image_id"] in usable_ids)
    pair_rows = [{name: line[name] for name in ("pair_id", "split", "seg", "mask_id", "image_id")} for line in offered]
    balanced_ids = tasks.balance_pairs(pair_rows, options.seed)
    areas = read_mask_boxes(pair_rows, frames, masks, options.smallest) if masks else {}
    lines = {"texts": [texts], "phrases": [phrases], "conversations": conversations, "pairs": pairs}
    with Blocks(options.source, usable_images, facts, sizes, lines, areas) as blocks:
        settings = TaskOptions(options.seed, pairs=balanced_ids)
        writer = SampleWriter(options, rows, draw_samples(blocks, rows, settings), balanced_ids, reason_by_image)
        sample_lines = (sample_line(sample) for inputs in blocks.each() for sample in writer.records(inputs))
        write_lines(lines_out, sample_lines)
        write_table(index, pl.concat(writer.index), INDEX)
        write_table(excluded, outcomes.outcome_table(blocks, writer.num_by_outcome, reason_by_image), OUTCOMES)
        log.info("%s: %d lines of %d tasks", options.source, sum(map(len, writer.index)), len(rows))

"""Writes the samples of one source for a mix: one file for all tasks and splits, and the outcome of each record."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import cv2
import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import counted_rows
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.draws import SampleDraws, draw_samples
from cxr.radvlm.instructions.mix import TRAIN, MixRow, rows_from_options
from cxr.radvlm.instructions.source_block import Blocks, SourceBlock, read_geometry, read_mask_boxes
from cxr.radvlm.instructions.tasks import ABSENT, LINES_BY_TASK, UNITS_BY_TASK, TaskOptions, Unit
from cxr.radvlm.instructions.wordings import word_turn
from cxr.radvlm.samples import make_line

STAGE = "radvlm_instructions"
INDEX: Columns = {
    "sample_id": Column(pl.String, "Sample id. The rows have the order of the lines in the file beside the table."),
    "task": Column(pl.String, "Task of the sample."),
    "source": Column(pl.String, "Source of the sample."),
    "split": Column(pl.String, "Split in the mix."),
    "source_split": Column(pl.String, "Split of the image in its source."),
    "subject_id": Column(pl.String, "Patient id."),
    "image_id": Column(pl.String, "Image id."),
    "view": Column(pl.String, "View of the image; null if unknown."),
    "unit": Column(pl.String, "Key of the fact or image that the question is about."),
    "pass": Column(pl.Int64, "Number of the pass, from 0."),
    "facts": Column(pl.Int64, "Number of facts on which the sample is based; 0 if an earlier pass has counted them."),
}
OUTCOMES: Columns = {
    "source": Column(pl.String, "Source of the records."),
    "what": Column(
        pl.String,
        "Kind of record: a kind of fact, texts, conversations or pairs; for a mix `lines`, `table1` or `exchanged`.",
    ),
    "outcome": Column(
        pl.String,
        "`all`, or the outcome. `used`: the record is in the mix; `reader`: the fact comes from one annotator; "
        "`split_conflict`: the patient is also in another split of the mix; `no_image`: the image is not in the source "
        "or has no frame; `no_area`, `nothing_left`, `bad_form`, `no_boxes`: see reasons; `not_in_mix`: no task asks "
        "about the record; `not_drawn`: a limit or a draw excludes it. Lines: `file`, `train`, `validate`, `test`: the "
        "line is in the file; `no_other`: no other image can be exchanged for its image.",
    ),
    "number": Column(pl.Int64, "Number of records."),
}
ILS = ("ils_grounding", "ils_segmentation")
UNITS_OF_LINE = {
    "texts": lambda line: [(image, image, ("report_generation",)) for image in line["image_ids"]],
    "conversations": lambda line: [
        (line["image_id"], line["conversation_id"], ("conversation_grounded" if line["grounded"] else "conversation",))
    ],
    "pairs": lambda line: [(line["image_id"], line["pair_id"], ILS)],
}
"""{kind of lines: function that returns (image id, key, tasks that may ask it) for each question of a line}."""


class SampleWriter:
    """Builds the samples of a source, block by block, and counts the outcome of each record.

    ``pairs``: ids of the selected ILS questions; ``reason_by_image``: {excluded image: reason}. The attribute ``index``
    has a table of INDEX rows per block; ``num_by_outcome`` is {(record kind, outcome): number}.
    """

    def __init__(
        self, seed: int, rows: Sequence[MixRow], draws: SampleDraws | None = None,
        pairs: frozenset[str] = frozenset(), reason_by_image: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.seed, self.rows, self.draws = seed, rows, draws or SampleDraws()
        self.reason_by_image = reason_by_image or {}
        self.index: list[pl.DataFrame] = []
        self.num_by_outcome: Counter[tuple[str, str]] = Counter()
        # of the current block: ids of used facts, {excluded fact or pair: reason}, (kind, key) of used, undrawn units
        self._used_facts: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._used_units: set[tuple[str, str]] = set()
        self._undrawn_units: set[tuple[str, str]] = set()
        exclude = lambda reason, ids: self._reasons.update(dict.fromkeys(ids, reason))  # noqa: E731
        self.task_options = TaskOptions(seed, exclude, pairs)

    def lines(self, inputs: SourceBlock) -> Iterator[dict]:
        """Yield the samples of a block for all mix rows. Raises AssertionError if a record has no outcome."""
        for of_block in (self._used_facts, self._reasons, self._used_units, self._undrawn_units):
            of_block.clear()
        index: list[tuple] = []
        for row in self.rows:
            if row.task == ABSENT:
                absences = (absence for absence in tasks.find_absences(inputs) if absence[:2] in self.draws.absent)
                units = (tasks.absent_unit(*absence) for absence in absences)
            else:
                units = UNITS_BY_TASK[row.task](inputs, self.task_options)
            for unit in units:
                yield from self._unit_lines(row, inputs, unit, index)
        self.index.append(pl.DataFrame(index, schema=schema(INDEX), orient="row"))
        self._count_outcomes(inputs)

    def _unit_lines(self, row: MixRow, inputs: SourceBlock, unit: Unit, index: list[tuple]) -> Iterator[dict]:
        image = inputs.images[unit.image_id]
        split = row.split_of(image["split"])
        unit_key = (LINES_BY_TASK.get(row.task, ""), unit.key)
        if not self.draws.keeps(row.task, split, unit.image_id):
            self._undrawn_units.add(unit_key)
            return
        self._used_units.add(unit_key)
        drawn_for = (self.seed, row.source, unit.key)
        for number, part in unit.passes(row.repeat, split == TRAIN):
            turns = part.turns or (word_turn(row.task, part.kind, drawn_for, number, part.slots),)
            name = f"r{stable_hash(row.task, row.source, unit.key, number):016x}"
            line = make_line(
                name, row.task, image | {"split": split}, turns, boxes=part.boxes,
                labels=inputs.present.get(unit.image_id), mask_ids=part.mask_ids, facts=part.facts, engine=part.engine,
                number=number, target=part.target,
            )  # fmt: skip
            num_new_facts = 0 if number and unit.repeats_part else len(part.facts)
            index.append((
                name, row.task, image["source"], split, image["split"], image["subject_id"], unit.image_id,
                image["view"], unit.key, number, num_new_facts,
            ))  # fmt: skip
            self._used_facts.update(part.facts)
            yield line

    def _count_outcomes(self, inputs: SourceBlock) -> None:
        task_names = {row.task for row in self.rows}
        for fact_id, image_id, kind, reader in inputs.facts.select("fact_id", "image_id", "kind", "reader").iter_rows():
            if fact_id in self._used_facts:
                outcome = "used"
            elif reader is not None:
                outcome = "reader"
            elif image_id not in inputs.images:
                outcome = self.reason_by_image.get(image_id, "no_image")
            else:
                unused = "not_in_mix" if task_names.isdisjoint(tasks.TASKS_BY_FACT[kind]) else "not_drawn"
                outcome = self._reasons.get(fact_id, unused)
            self.num_by_outcome[kind, outcome] += 1
        for kind, units_of in UNITS_OF_LINE.items():
            for image_id, key, possible_tasks in (unit for line in getattr(inputs, kind) for unit in units_of(line)):
                if image_id not in inputs.images:
                    continue
                if (kind, key) in self._used_units:
                    outcome = "used"
                elif key in self._reasons or task_names.isdisjoint(possible_tasks):
                    outcome = self._reasons.get(key, "not_in_mix")
                elif (kind, key) in self._undrawn_units or (kind == "pairs" and key not in self.task_options.pairs):
                    outcome = "not_drawn"
                else:
                    raise AssertionError(f"{STAGE}: a record of {kind} is neither used nor excluded")
                self.num_by_outcome[kind, outcome] += 1

    def outcome_table(self, blocks: Blocks) -> pl.DataFrame:
        """Return the outcomes of all blocks. Raises AssertionError if they do not add up to the source's records."""
        counts = Counter(self.num_by_outcome)
        totals = Counter(dict(blocks.facts.group_by("kind").len().collect().iter_rows()))
        totals += Counter({kind: blocks.num_images[kind] for kind in UNITS_OF_LINE})
        for (kind, image_id), number in blocks.num_by_missing_image.items():
            if kind in UNITS_OF_LINE:
                counts[kind, self.reason_by_image.get(image_id, "no_image")] += number
        rows = []
        for kind in sorted(totals.keys() | {kind for kind, _ in counts}):
            parts = {name: number for (counted_kind, name), number in sorted(counts.items()) if counted_kind == kind}
            rows += [(blocks.source, *row) for row in counted_rows(STAGE, kind, totals[kind], parts)]
        return pl.DataFrame(rows, schema=schema(OUTCOMES), orient="row")


def run(
    *, images: str, facts: str, texts: str, phrases: str, conflicts: str, frames: Sequence[str], lines_out: str,
    index: str, excluded: str, source: str, rows: list[Mapping], smallest: int, seed: int,
    conversations: Sequence[str] = (), pairs: Sequence[str] = (), masks: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a source's samples, index and outcomes. ``smallest``: minimum area of a mask component, in frame pixels."""
    cv2.setNumThreads(1)
    mix_rows = [row for row in rows_from_options(rows) if row.used]
    image_table = read_table(images)
    geometry = read_geometry(frames, set(image_table["image_id"]))
    sizes = {image_id: shape for image_id, (_, shape) in geometry.items()}
    conflict_ids = set(read_table(conflicts).filter(source=source)["image_id"])
    reason_by_image = dict.fromkeys(set(image_table["image_id"]) - sizes.keys(), "no_image")
    reason_by_image |= dict.fromkeys(conflict_ids, "split_conflict")
    usable_images = image_table.filter(~pl.col("image_id").is_in(list(reason_by_image)))
    usable_ids = set(usable_images["image_id"])
    offered = (line for path in pairs for line in read_lines(path) if line["image_id"] in usable_ids)
    pair_rows = [{name: line[name] for name in ("pair_id", "split", "seg", "mask_id", "image_id")} for line in offered]
    balanced_ids = tasks.balance_pairs(pair_rows, seed)
    areas = read_mask_boxes(pair_rows, geometry, masks, smallest) if masks else {}
    lines = {"texts": [texts], "phrases": [phrases], "conversations": conversations, "pairs": pairs}
    with Blocks(source, usable_images, facts, sizes, lines, areas) as blocks:
        settings = TaskOptions(seed, pairs=balanced_ids)
        writer = SampleWriter(seed, mix_rows, draw_samples(blocks, mix_rows, settings), balanced_ids, reason_by_image)
        write_lines(lines_out, (line for inputs in blocks.each() for line in writer.lines(inputs)))
        write_table(index, pl.concat(writer.index), INDEX)
        write_table(excluded, writer.outcome_table(blocks), OUTCOMES)
        log.info("%s: %d lines of %d tasks", source, sum(map(len, writer.index)), len(mix_rows))

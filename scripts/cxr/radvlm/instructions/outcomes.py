"""Outcomes of a source's records in a mix: every fact, text, conversation and pair is counted once."""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import polars as pl

from cxr.base.columns import schema
from cxr.base.conservation import counted_rows
from cxr.radvlm.instructions.columns import OUTCOMES
from cxr.radvlm.instructions.source_block import Blocks, SourceBlock
from cxr.radvlm.instructions.tasks import TASKS_BY_FACT

STAGE = "radvlm_instructions"
ILS = ("ils_grounding", "ils_segmentation")
UNITS_OF_LINE = {
    "texts": lambda line: [(image, image, ("report_generation",)) for image in line["image_ids"]],
    "conversations": lambda line: [
        (line["image_id"], line["conversation_id"], ("conversation_grounded" if line["grounded"] else "conversation",))
    ],
    "pairs": lambda line: [(line["image_id"], line["pair_id"], ILS)],
}
"""{kind of lines: function that returns (image, key, tasks) of the units of a line}; tasks: those that may use it."""


@dataclass
class BlockOutcome:
    """Outcome of a block. used: ids of facts used by lines; reasons: {fact or pair: why it is excluded}; asked,
    not_drawn: (kind, key) of the units that are used and not selected.
    """

    used: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    used_units: set[tuple[str, str]] = field(default_factory=set)
    not_drawn: set[tuple[str, str]] = field(default_factory=set)


def count_outcomes(
    inputs: SourceBlock, block: BlockOutcome, tasks: Set[str], reason_by_image: Mapping[str, str], pairs: Set[str]
) -> Counter:
    """Return {(kind, outcome): number} of a block.

    ``tasks``: tasks of the source in the mix; ``reason_by_image``: {image: why it is excluded}; ``pairs``: ids of the
    selected pairs. Raises AssertionError for a unit without an outcome.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for fact_id, image_id, kind, reader in inputs.facts.select("fact_id", "image_id", "kind", "reader").iter_rows():
        if fact_id in block.used:
            outcome = "used"
        elif reader is not None:
            outcome = "reader"
        elif image_id not in inputs.images:
            outcome = reason_by_image.get(image_id, "no_image")
        elif fact_id in block.reasons:
            outcome = block.reasons[fact_id]
        else:
            outcome = "not_drawn" if tasks & set(TASKS_BY_FACT[kind]) else "not_in_mix"
        counts[kind, outcome] += 1
    units = (
        (kind, *unit)
        for kind, units_of in UNITS_OF_LINE.items()
        for line in getattr(inputs, kind)
        for unit in units_of(line)
    )
    for kind, image_id, key, asking in units:
        if image_id in inputs.images:
            counts[kind, _unit_outcome((kind, key), block, not tasks & set(asking), key in pairs)] += 1
    return counts


def _unit_outcome(unit: tuple[str, str], block: BlockOutcome, unasked: bool, balanced: bool) -> str:
    line_kind, key = unit
    if unit in block.used_units:
        return "used"
    if key in block.reasons:
        return block.reasons[key]
    if unasked:
        return "not_in_mix"
    if unit in block.not_drawn or (line_kind == "pairs" and not balanced):
        return "not_drawn"
    raise AssertionError(f"{STAGE}: a unit of {line_kind} is neither asked nor left out")


def outcome_table(blocks: Blocks, block_counts: Counter, reason_by_image: Mapping[str, str]) -> pl.DataFrame:
    """Return the table of outcomes of a source. ``block_counts``: sum of :func:`count_outcomes` over all blocks.

    Raises AssertionError if they do not add up to the source's files.
    """
    counts, totals = Counter(block_counts), Counter(dict(blocks.facts.group_by("kind").len().collect().iter_rows()))
    for kind in UNITS_OF_LINE:
        totals[kind] = blocks.lines[kind].num_images
        for image_id, number in blocks.lines[kind].num_by_missing_image.items():
            counts[kind, reason_by_image.get(image_id, "no_image")] += number
    rows = []
    for kind in sorted(totals.keys() | {kind for kind, _ in counts}):
        outcomes = {name: number for (outcome_kind, name), number in sorted(counts.items()) if outcome_kind == kind}
        if outcomes or totals[kind]:
            rows += [(blocks.source, *row) for row in counted_rows(STAGE, kind, totals[kind], outcomes)]
    return pl.DataFrame(rows, schema=schema(OUTCOMES), orient="row")

"""A model that is asked as it is: its convention of coordinates is declared, or probed on validation lines."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.atomic import whole
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.seeds import rng
from cxr.base.tables import write_table
from cxr.vlm import conventions
from cxr.vlm.answers.ask import Asker
from cxr.vlm.answers.engine import AnswersOptions, Execution
from cxr.vlm.grounding import answer_iou, on_grid
from cxr.vlm.models import base_of, write_run
from cxr.vlm.samples import PictureStore, Sample, read_samples
from cxr.vlm.tuning.columns import PROBED
from cxr.vlm.tuning.tune import TuningOptions

log = logging.getLogger("cxr")
PROBE = "probe"
TOKENS = 256
"""Longest answer of a probe."""


@dataclass(frozen=True)
class UntrainedOptions(TuningOptions):
    """Settings of the run; probed: lines that a probe asks."""

    probed: int = 0


def run_untrained(
    *,
    lines: str,
    pictures: list[str],
    run: str,
    probed: str,
    options: UntrainedOptions,
    compute: dict,
    base: str | list[str] = "",
    wording: str | list[str] = "",
) -> None:
    """Write the folder ``run``, which says how the model ``base`` is asked, and the table ``probed``.

    With the convention ``probe`` the validation lines are asked under each convention, and the one of the highest mean
    IoU is taken. Raises UserError where none reads a box.
    """
    base = base_of(base, options.model, options.revision)
    convention, rows = options.convention, []
    with whole(run) as temporary_dir:
        facts = options.facts() | {"base": base}
        if options.convention == PROBE:
            samples = drawn(read_samples(lines), options.probed, options.seed)
            write_run(temporary_dir, convention="grid1000", **facts)
            scores = probe(samples, pictures, temporary_dir, base, options, compute)
            convention = max(scores, key=lambda name: (scores[name], name == "grid1000"))
            if not scores[convention]:
                raise UserError(f"{base} gives no right box under any convention of {len(samples)} lines: declare one")
            rows = [
                {"convention": name, "queries": len(samples), "iou": iou, "chosen": name == convention}
                for name, iou in scores.items()
            ]
        write_run(temporary_dir, convention=convention, **facts)
    write_table(probed, pl.DataFrame(rows, schema=schema(PROBED)), PROBED)


def drawn(samples: list[Sample], most: int, seed: int) -> list[Sample]:
    """Return at most ``most`` of the samples that ask for boxes, drawn by seed, in their order."""
    asking = [sample for sample in samples if sample.asks_boxes]
    if len(asking) <= most:
        return asking
    selected = set(rng(seed, "probe").sample(range(len(asking)), most))
    return [sample for at, sample in enumerate(asking) if at in selected]


def probe(
    samples: list[Sample], pictures: list[str], run: Path, base: str, options: UntrainedOptions, compute: dict
) -> dict[str, float]:
    """Return the mean IoU of the answers under each convention, asked and read in it."""
    asking = AnswersOptions(
        "transformers", "", TOKENS, options.own["max_length"], "own", options.own["dtype"], options.seed, {}
    )
    execution = Execution(compute.get("device", "auto"), compute.get("asked"), compute.get("batch", 8))
    scores = {}
    with PictureStore(pictures, options.side) as store:
        for name in conventions.PROBED:
            asker = Asker.from_run(str(run), base, replace(asking, convention=name), execution)
            line_samples = zip(asker.lines(samples, store), samples, strict=True)
            ious = [
                answer_iou(line["text"], name, tuple(line["seen"]), on_grid(np.array(sample.boxes["answer"])))
                for line, sample in line_samples
            ]
            scores[name] = float(np.mean(ious)) if ious else 0.0
            log.info("convention %s: mean IoU %.3f of %d lines", name, scores[name], len(ious))
    return scores

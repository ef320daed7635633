"""An untrained model: its convention of coordinates is declared, or probed on validation lines."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.atomic import atomic_folder
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.seeds import make_rng
from cxr.base.tables import write_table
from cxr.vlm import conventions
from cxr.vlm.answers.ask import Asker
from cxr.vlm.answers.engine import AnswersOptions, Execution
from cxr.vlm.grounding import answer_iou, to_grid
from cxr.vlm.models import base_folder, write_run
from cxr.vlm.samples import ImageStore, Sample, read_samples
from cxr.vlm.tuning.columns import PROBES
from cxr.vlm.tuning.tune import TuningOptions

log = logging.getLogger("cxr")
PROBE = "probe"
MAX_PROBE_TOKENS = 256
"""Maximum length of a probe's answer, tokens."""


@dataclass(frozen=True)
class UntrainedOptions(TuningOptions):
    """Settings of the run; probed: number of lines in a probe."""

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
    """Write the run file for the model ``base`` into the folder ``run``, and the table ``probed``.

    The convention ``probe`` asks validation lines under each convention and takes the one with the highest mean IoU.
    Raises UserError if no convention gives a correct box.
    """
    base = base_folder(base, options.model, options.revision)
    convention, rows = options.convention, []
    with atomic_folder(run) as temporary_dir:
        facts = options.facts() | {"base": base}
        if options.convention == PROBE:
            samples = select_queries(read_samples(lines), options.probed, options.seed)
            write_run(temporary_dir, convention="grid1000", **facts)
            scores = probe_conventions(samples, pictures, temporary_dir, base, options, compute)
            convention = max(scores, key=lambda name: (scores[name], name == "grid1000"))
            if not scores[convention]:
                raise UserError(
                    f"{base} gives no correct box in {len(samples)} lines under any convention: declare one"
                )
            rows = [
                {"convention": name, "queries": len(samples), "iou": iou, "chosen": name == convention}
                for name, iou in scores.items()
            ]
        write_run(temporary_dir, convention=convention, **facts)
    write_table(probed, pl.DataFrame(rows, schema=schema(PROBES)), PROBES)


def select_queries(samples: list[Sample], most: int, seed: int) -> list[Sample]:
    """Return at most ``most`` samples that ask for boxes, drawn by seed, in order."""
    asking = [sample for sample in samples if sample.asks_boxes]
    if len(asking) <= most:
        return asking
    selected = set(make_rng(seed, "probe").sample(range(len(asking)), most))
    return [sample for at, sample in enumerate(asking) if at in selected]


def probe_conventions(
    samples: list[Sample], pictures: list[str], run: Path, base: str, options: UntrainedOptions, compute: dict
) -> dict[str, float]:
    """Return {convention: mean IoU of the answers}; questions and reading use the same convention."""
    asking = AnswersOptions(
        "transformers", "", MAX_PROBE_TOKENS, options.own["max_length"], "own", options.own["dtype"], options.seed, {}
    )
    execution = Execution(compute.get("device", "auto"), compute.get("asked"), compute.get("batch", 8))
    scores = {}
    with ImageStore(pictures, options.side) as store:
        for name in conventions.PROBED_CONVENTIONS:
            asker = Asker.from_run(str(run), base, replace(asking, convention=name), execution)
            line_samples = zip(asker.lines(samples, store), samples, strict=True)
            ious = [
                answer_iou(line["text"], name, tuple(line["seen"]), to_grid(np.array(sample.boxes["answer"])))
                for line, sample in line_samples
            ]
            scores[name] = float(np.mean(ious)) if ious else 0.0
            log.info("convention %s: mean IoU %.3f of %d lines", name, scores[name], len(ious))
    return scores

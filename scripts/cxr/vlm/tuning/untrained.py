"""Preparing a model that is used untuned. Its format of boxes is set by the user or measured on validation data."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.seeds import make_rng
from cxr.base.tables import write_rows
from cxr.vlm import conventions
from cxr.vlm.answers.ask import Asker
from cxr.vlm.answers.engine import AnswersOptions
from cxr.vlm.columns import PROBES
from cxr.vlm.models import base_folder, write_run
from cxr.vlm.reading import answer_iou, to_grid
from cxr.vlm.samples import ImageStore, Sample, read_samples
from cxr.vlm.tuning.tune import TuningOptions

log = logging.getLogger("cxr")
PROBE = "probe"
MAX_PROBE_TOKENS = 256  # maximum length of a probe's answer, tokens
PROBED_LINES = 200  # number of validation lines in a probe


def run_untrained(
    *,
    lines: str,
    pictures: list[str],
    run: str,
    probed: str,
    options: TuningOptions,
    compute: dict,
    base: str | list[str] = "",
) -> None:
    """Write the run file for the model ``base`` into the folder ``run``, and the scores of box formats into ``probed``.

    If the convention is ``probe``, the model answers validation samples in each convention, and the highest mean IoU
    decides. Raises UserError if no answer in any convention overlaps a true box.
    """
    base = base_folder(base, options.model, options.revision)
    convention, rows = options.convention, []
    with atomic_folder(run) as temporary_dir:
        facts = options.facts() | {"base": base}
        if options.convention == PROBE:
            samples = select_queries(read_samples(lines), PROBED_LINES, options.seed)
            write_run(temporary_dir, convention="grid1000", **facts)
            scores = probe_conventions(samples, pictures, temporary_dir, base, options, compute)
            convention = max(scores, key=lambda name: (scores[name], name == "grid1000"))
            if not scores[convention]:
                problem = f"{base} gives no box that overlaps the true one in {len(samples)} samples, in any format"
                raise UserError(f"{problem}: set convention of the run in vlm.tuning.runs")
            rows = [
                {"convention": name, "queries": len(samples), "iou": iou, "chosen": name == convention}
                for name, iou in scores.items()
            ]
        write_run(temporary_dir, convention=convention, **facts)
    write_rows(probed, rows, PROBES)


def select_queries(samples: list[Sample], most: int, seed: int) -> list[Sample]:
    """Return at most ``most`` samples that ask for boxes. They are drawn by ``seed`` and stay in their order."""
    asking = [sample for sample in samples if sample.asks_boxes]
    if len(asking) <= most:
        return asking
    selected = set(make_rng(seed, "probe").sample(range(len(asking)), most))
    return [sample for at, sample in enumerate(asking) if at in selected]


def probe_conventions(
    samples: list[Sample], pictures: list[str], run: Path, base: str, options: TuningOptions, compute: dict
) -> dict[str, float]:
    """Return {convention: mean IoU of the answers}. Questions are asked and answers read in the same convention."""
    limits = MAX_PROBE_TOKENS, options.recipe["max_length"]
    asking = AnswersOptions("transformers", "", *limits, "own", options.recipe["dtype"], options.seed)
    setup = Setup.of_job({}, compute)
    scores = {}
    with ImageStore(pictures, options.side) as store:
        for name in conventions.PROBED_CONVENTIONS:
            asker = Asker.from_run(str(run), base, replace(asking, convention=name), setup)
            ious = [
                answer_iou(reply.answer.text, name, tuple(reply.input_size), to_grid(np.array(sample.boxes["answer"])))
                for reply, sample in zip(asker.replies(samples, store), samples, strict=True)
            ]
            scores[name] = float(np.mean(ious)) if ious else 0.0
            log.info("convention %s: mean IoU %.3f of %d lines", name, scores[name], len(ious))
    return scores

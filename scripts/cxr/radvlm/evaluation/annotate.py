"""Annotate the reports of a run and their references by a model: one module ``annotate_<name>`` each.

A module declares METRIC, the metric that its annotations are of; PAIRS, whether it reads an answer beside its reference
or each text alone; INPUTS, files that it reads; FILES, settings of its own that are a user's files; PLACED, files of
the user's folder ``model``; LLM, whether it asks a language model; ENVIRONMENT, the ending of its environment's name,
if that is not its own; and offers ``load(own, files, execution)``. Its lines are those that annotations made elsewhere
have, so the formula is the same.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.evaluation.answered import ANSWER, FILTERED, ORIGINAL, joined

log = logging.getLogger("cxr")
BOTH = "both"
TASK = "report_generation"
Item = tuple[str, str, tuple[str, ...]]
"""A sample, of what its annotation is, and the text, or the answer and its reference."""


@dataclass(frozen=True)
class AnnotateOptions:
    """annotator: its name; own: its settings; engine: what its lines name it; reference: filtered, original or both."""

    annotator: str
    own: Mapping
    engine: str
    reference: str


def items(lines: Sequence[Mapping], said: Mapping, texts: Mapping, reference: str, pairs: bool) -> Iterator[Item]:
    """Yield what is annotated. ``said``: {sample: its answer}; ``texts``: {(source, study): a report's own section}.

    An answer that failed has no annotation.
    """
    wanted = (FILTERED, ORIGINAL) if reference == BOTH else (reference,)
    for line in lines:
        name, answer = line["sample_id"], said[line["sample_id"]]
        told = None if answer.failure else answer.text
        if not pairs and told is not None:
            yield name, ANSWER, (told,)
        for of in wanted:
            right = line["turns"][0]["answer"] if of == FILTERED else texts[line["source"], line["study_id"]]
            if not pairs:
                yield name, of, (right,)
            elif told is not None:
                yield name, of, (told, right)


def run(
    *, lines: str, answers: str, notes_out: str, options: AnnotateOptions, execution: Mapping,
    texts: Sequence[str] = (), weights: str = "", prompt: str = "", placed: Sequence[str] = (), code: str = "",
) -> None:  # fmt: skip
    """Write an annotation a line: metric, engine, sample_id, of, and what the model found. Equal texts are read once.

    ``texts``: reports of the sources, for ``reference: original``; ``weights``, ``prompt``: files of an annotator that
    declares them; ``placed``: those of its folder; ``execution``: how a language model is run, whose answers are kept
    beside the lines. A text without an annotation has ``failure``, the reason, instead. Raises UserError for a model
    that is missing.
    """
    del placed  # inputs alone: the settings name their folder
    module = import_module(f"cxr.radvlm.evaluation.annotate_{options.annotator}")
    asked = [line for line in read_lines(lines) if line["task"] == TASK]
    names = {line["sample_id"] for line in asked}
    said, _ = joined(asked, (one for one in read_lines(answers) if one["sample_id"] in names))
    original = {(one["source"], one["study_id"]): one["text"] for path in texts for one in read_lines(path)}
    found = list(items(asked, said, original, options.reference, module.PAIRS))
    once = sorted({held for *_, held in found})
    files = {"weights": weights, "prompt": prompt}
    kept = dict(execution) | {"answers": str(Path(notes_out).with_suffix("")), "code": code}
    told = dict(zip(once, module.load(options.own, files, kept)(once) if once else (), strict=True))
    if failures := Counter(told[held]["failure"] for *_, held in found if "failure" in told[held]):
        log.warning("%d of %d annotations failed: %s", failures.total(), len(found), dict(sorted(failures.items())))
    same = {"metric": module.METRIC, "engine": options.engine}
    write_lines(notes_out, (same | {"sample_id": name, "of": of} | told[held] for name, of, held in found))

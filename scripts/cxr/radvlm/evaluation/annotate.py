"""Annotate the reports of a run and their references by a model: one module ``annotate_<name>`` each.

A module declares METRIC, the metric that its annotations are of; PAIRS, whether it reads an answer beside its reference
or each text alone; INPUTS, files that it reads; and offers ``load(own, files)``. Its lines are those that annotations
made elsewhere have, so the formula is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.evaluation.answered import ANSWER, FILTERED, ORIGINAL, joined

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
    *, lines: str, answers: str, notes_out: str, options: AnnotateOptions, texts: Sequence[str] = (),
    weights: str = "",
) -> None:  # fmt: skip
    """Write an annotation a line: metric, engine, sample_id, of, and what the model found. Equal texts are read once.

    ``texts``: reports of the sources, for ``reference: original``; ``weights``: of an annotator that declares them.
    Raises UserError for a model that is missing.
    """
    module = import_module(f"cxr.radvlm.evaluation.annotate_{options.annotator}")
    asked = [line for line in read_lines(lines) if line["task"] == TASK]
    names = {line["sample_id"] for line in asked}
    said, _ = joined(asked, (one for one in read_lines(answers) if one["sample_id"] in names))
    original = {(one["source"], one["study_id"]): one["text"] for path in texts for one in read_lines(path)}
    found = list(items(asked, said, original, options.reference, module.PAIRS))
    once = sorted({held for *_, held in found})
    told = dict(zip(once, module.load(options.own, weights)(once) if once else (), strict=True))
    same = {"metric": module.METRIC, "engine": options.engine}
    write_lines(notes_out, (same | {"sample_id": name, "of": of} | told[held] for name, of, held in found))

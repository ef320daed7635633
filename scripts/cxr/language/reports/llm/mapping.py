"""Mapping of locations to categories and zone labels by a language model (Figure 10).

Each distinct pair of a location and an entity (the name of a finding) takes two questions, one for the category and one
for the zones. A pair of the category lung without a location needs no second question, because it means both lungs. The
output has a JSON line per pair: location, entity, category (one of 17, or null), labels (of the 15 zones), problem
(null, or the reason why there is no answer), raw (the last answer if it was unusable), model.
"""

import logging

from cxr.base.tables import read_lines, write_lines
from cxr.base.vocabulary import LUNGS, ZONE_LABELS
from cxr.language.reports.llm import questions
from cxr.language.reports.llm.terms import Term
from cxr.llm.asking import Answer, Generate, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.options import ModelOptions

log = logging.getLogger("cxr")


def run(*, terms: str, output: str, options: ModelOptions, execution: dict, compute: dict | None = None) -> None:
    """Map each pair of a location and an entity in the file ``terms`` to a category and zone labels, and write
    ``output``. Raises UserError if the model cannot be reached."""
    pairs = [(line["location"], line["entity"]) for line in read_lines(terms)]
    generate = connect_lazily(options, execution)
    write_lines(output, map_terms(pairs, generate, options, compute), checked=True)


def map_terms(pairs: list[Term], generate: Generate, options: ModelOptions, compute: dict | None = None) -> list[dict]:
    """Return the output line of each pair of a location and an entity, in the same order."""
    log.info("mapping: %d pairs of a location and a finding", len(pairs))
    category_questions = {
        (location, entity): questions.refuse_orders(
            f"{location or ''}\n{entity}", questions.category_question(location, entity)
        )
        for location, entity in pairs
    }
    category_answers = ask_each(category_questions, generate, options, compute)
    lung_pairs = [pair for pair in pairs if pair[0] and _value(category_answers[pair]) == "lung"]
    log.info("mapping: %d of the pairs are in the lungs", len(lung_pairs))
    zone_questions = {pair: questions.zones_question(*pair) for pair in lung_pairs}
    zone_answers = ask_each(zone_questions, generate, options, compute)
    return [_line(pair, category_answers[pair], zone_answers.get(pair), options.name) for pair in pairs]


def _value(answer: Answer) -> str | None:
    category = answer.value["category"] if answer.value else None
    return None if category == questions.NO_CATEGORY else category


def _line(pair: Term, category_answer: Answer, zone_answer: Answer | None, model: str) -> dict:
    location, entity = pair
    category = _value(category_answer)
    zone_labels = set(zone_answer.value["categories"]) if zone_answer and zone_answer.value else set()
    if category == "lung" and location is None:
        zone_labels = set(LUNGS)
    failed_answer = next((answer for answer in (category_answer, zone_answer) if answer and answer.problem), None)
    return {
        "location": location,
        "entity": entity,
        "category": category,
        "labels": [label for label in ZONE_LABELS if label in zone_labels],
        "problem": failed_answer.problem if failed_answer else None,
        "raw": failed_answer.raw if failed_answer else "",
        "model": model,
    }

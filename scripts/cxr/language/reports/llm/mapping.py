"""Mapping locations to categories and zone labels by a language model (Figure 10): two steps, once per distinct pair.

Writes JSON Lines in the order of the pairs: location, entity, category (of the 17, null if none), labels (of the 15),
problem (null, or why there is no answer), raw (the last answer if it was unusable), model. A pair of the category lung
without a location needs no second step: it means both lungs.
"""

import logging

from cxr.base.tables import read_lines, write_lines
from cxr.base.vocabulary import LUNGS, ZONE_LABELS
from cxr.language.reports.llm import answers, prompts
from cxr.language.reports.llm.terms import Term
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.client import connect_lazily
from cxr.llm.guards import INJECTION
from cxr.llm.options import ModelOptions

log = logging.getLogger("cxr")


def run(*, terms: str, output: str, options: ModelOptions, execution: dict, compute: dict | None = None) -> None:
    """Map every pair of ``terms``. Raises UserError if the model cannot be reached."""
    pairs = [(line["location"], line["entity"]) for line in read_lines(terms)]
    generate = connect_lazily(options, execution)
    write_lines(output, map_terms(pairs, generate, options, compute), checked=True)


def map_terms(pairs: list[Term], generate: Generate, options: ModelOptions, compute: dict | None = None) -> list[dict]:
    """Return a line for each pair, in order."""
    log.info("mapping: %d pairs", len(pairs))
    category_answers = ask_each({pair: _category_question(*pair) for pair in pairs}, generate, options, compute)
    lung_pairs = [pair for pair in pairs if pair[0] and _value(category_answers[pair]) == "lung"]
    log.info("mapping: %d of them lie in the lungs", len(lung_pairs))
    zone_questions = {pair: Question(prompts.zone_messages(*pair), answers.zones_schema()) for pair in lung_pairs}
    zone_answers = ask_each(zone_questions, generate, options, compute)
    return [_line(pair, category_answers[pair], zone_answers.get(pair), options.name) for pair in pairs]


def _category_question(location: str | None, entity: str) -> Question | Answer:
    if prompts.addresses_the_model(f"{location or ''}\n{entity}"):
        return Answer(problem=INJECTION)
    return Question(prompts.category_messages(location, entity), answers.category_schema())


def _value(answer: Answer) -> str | None:
    category = answer.value["category"] if answer.value else None
    return None if category == answers.NO_CATEGORY else category


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

"""Questions about the sections of reports, and their answers (Figure 9)."""

import logging

from cxr.language.reports.llm import answers, prompts
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.guards import INJECTION
from cxr.llm.options import ModelOptions

log = logging.getLogger("cxr")


def structure_texts(
    texts: dict[str, list[str]], options: ModelOptions, generate: Generate, compute: dict | None = None
) -> list[dict]:
    """Return a line for each text."""
    questions = {key: _make_question(sentences) for key, sentences in texts.items()}
    answer_by_key = ask_each(questions, generate, options, compute)
    lines = [_line(key, answer, options.name) for key, answer in answer_by_key.items()]
    log.info("structuring: %d answers, %d quarantined", len(lines), sum(line["problem"] is not None for line in lines))
    return lines


def _make_question(sentences: list[str]) -> Question | Answer:
    if not sentences:
        return Answer(value={"findings": []})
    if prompts.addresses_the_model("\n".join(sentences)):
        return Answer(problem=INJECTION)
    return question(sentences)


def question(sentences: list[str]) -> Question:
    """Return the request for one section."""
    return Question(
        prompts.structuring_messages(sentences),
        answers.structuring_schema(len(sentences)),
        lambda answer: answers.find_contradiction(answer["findings"]),
    )


def _line(key: str, answer: Answer, model: str) -> dict:
    return {
        "text": key,
        "findings": answer.value["findings"] if answer.value else None,
        "problem": answer.problem,
        "raw": answer.raw,
        "attempts": answer.attempts,
        "model": model,
    }

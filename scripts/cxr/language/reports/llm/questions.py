"""Questions to the paper's two language models (Figures 9 and 10), and checks of the answers.

The text of a report must not act as an instruction. Brackets of chat templates are replaced, so that the text cannot
end the user's turn in the chat. The text cannot fill another placeholder of the prompt. A text that gives orders to the
model is not sent.
"""

from cxr.base.resources import load_resource
from cxr.base.vocabulary import CATEGORIES, ZONE_LABELS
from cxr.language.reports.llm.terms import normalize_term
from cxr.llm.asking import Answer, Question
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.messages import fill_prompt
from cxr.llm.replies import object_schema, text_schema

RESOURCE_FILES = ("prompts.yaml",)
PRESENCE, CERTAINTY = ("positive", "negative"), ("definitive", "tentative")
NO_CATEGORY = "none"
_LONGEST, _MOST_FINDINGS, _MOST_LOCATIONS = 120, 80, 12
"""Maximum numbers of characters of a text, findings in an answer, and locations of a finding, so that answers end."""
FIELDS = (
    "entity", "sentence_index", "presence", "certainty", "predicted_lesion_type", "findings", "category", "categories"
)  # fmt: skip
"""Field names of the answers. A report with one of them in quotes before a colon counts as an order to the model."""


def refuse_orders(text: str, question: Question) -> Question | Answer:
    """Return the question, or an answer with the problem :data:`INJECTION` if ``text`` gives orders to the model."""
    return Answer(problem=INJECTION) if addresses_the_model(text, FIELDS) else question


def structuring_question(sentences: list[str]) -> Question:
    """Return the question that asks for the findings in a section's sentences, numbered from 1 (Figure 9)."""
    report = "\n".join(f"{number}. {neutralize(text)}" for number, text in enumerate(sentences, start=1))
    text = text_schema(_LONGEST)
    places = {"type": "array", "items": text, "minItems": 1, "maxItems": _MOST_LOCATIONS}
    finding = object_schema(
        entity=text,
        sentence_index={"type": "integer", "minimum": 1, "maximum": len(sentences)},
        presence={"enum": list(PRESENCE)},
        certainty={"enum": list(CERTAINTY)},
        location={"anyOf": [places, {"type": "null"}]},
        predicted_lesion_type={"anyOf": [text, {"type": "null"}]},
    )
    schema = object_schema(findings={"type": "array", "items": finding, "maxItems": _MOST_FINDINGS})
    messages = fill_prompt(load_resource(RESOURCE_FILES[0])["structuring"], report=report)
    return Question(messages, schema, lambda answer: find_contradiction(answer["findings"]))


def category_question(location: str | None, entity: str) -> Question:
    """Return the question that asks for the category of a finding's location (Figure 10, step 1)."""
    return _location_question("category", location, entity, category={"enum": [*CATEGORIES, NO_CATEGORY]})


def zones_question(location: str, entity: str) -> Question:
    """Return the question that asks for the zone labels of a location in the lungs (Figure 10, step 2)."""
    categories = {"type": "array", "items": {"enum": list(ZONE_LABELS)}, "maxItems": len(ZONE_LABELS)}
    return _location_question("zones", location, entity, categories=categories)


def _location_question(prompt: str, location: str | None, entity: str, **properties: dict) -> Question:
    prompts = load_resource(RESOURCE_FILES[0])
    place = prompts["no_location"] if location is None else neutralize(location)
    messages = fill_prompt(prompts[prompt], location=place, entity=neutralize(entity))
    return Question(messages, object_schema(**properties))


def find_contradiction(findings: list[dict]) -> str | None:
    """Return a description of the first contradiction or blank text in a section's findings, or None. In a sentence, an
    entity at a location must have exactly one presence and certainty (Figure 9, rule 3)."""
    status_by_statement: dict[tuple, tuple] = {}
    for number, item in enumerate(findings):
        entity, places = normalize_term(item["entity"]), tuple(map(normalize_term, item["location"] or ()))
        if not all((entity, *places, normalize_term(item["predicted_lesion_type"] or "-"))):
            return f"findings.{number}: its entity, location or lesion type is blank"
        status = (item["presence"], item["certainty"])
        if status_by_statement.setdefault((item["sentence_index"], entity, places), status) != status:
            return f"findings.{number}: presence or certainty contradicts an earlier finding"
    return None

"""The judge ``vllm``: a language model that sees facts, questions, expected and generated answers, but no model names.

A reply must follow a JSON schema with scores from 0 to 10. Without such a reply after all attempts, the conversation is
``unscored``, with a reason.
"""

from collections.abc import Mapping, Sequence

from cxr.base.resources import load_resource
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_resumably
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.messages import fill_prompt
from cxr.llm.options import ModelOptions
from cxr.llm.replies import object_schema, texts_key
from cxr.radvlm.evaluation.judge import MAX_SCORE, UNSCORED, Item, Judge, Judgement

RESOURCE_FILES = ("radvlm/judge_prompt.yaml",)
GPU = True
FIELDS = ("rounds", "correctness", "completeness", "relevance", "note", "overall")
MAX_NOTE_CHARACTERS = 200


def load(model_options: Mapping, execution: Mapping) -> Judge:
    """Return the judge. Its first question loads the model. Raises UserError if the model cannot be reached."""
    model = ModelOptions(**model_options)
    generate = connect_resumably(model, execution)

    def judge(items: Sequence[Item]) -> list[Judgement]:
        keys, questions = [texts_key(_texts(item)) for item in items], {}
        for key, item in zip(keys, items, strict=True):
            is_injection = addresses_the_model("\n".join(_texts(item)), FIELDS)
            questions[key] = Answer(problem=INJECTION) if is_injection else build_question(item)
        answers = ask_each(questions, generate, model)
        return [_build_judgement(answers[key]) for key in keys]

    return judge


def _texts(item: Item) -> list[str]:
    rounds = ((qa_round.question, qa_round.expected, qa_round.generated) for qa_round in item.rounds)
    return [*(text for texts in rounds for text in texts), *item.facts]


def build_question(item: Item) -> Question:
    """Return the prompt for one conversation. It names neither the conversation nor the model."""
    rounds_text = "\n".join(
        f"{number}. Question: {neutralize(qa_round.question)}\n   Expected: {neutralize(qa_round.expected)}\n"
        f"   Given: {neutralize(qa_round.generated)}"
        for number, qa_round in enumerate(item.rounds, start=1)
    )
    facts = "; ".join(map(neutralize, item.facts)) or "none"
    grade = {"type": "integer", "minimum": 0, "maximum": int(MAX_SCORE)}
    note = {"type": "string", "maxLength": MAX_NOTE_CHARACTERS}
    round_schema = object_schema(correctness=grade, completeness=grade, relevance=grade, note=note)
    rounds = {"type": "array", "items": round_schema, "minItems": len(item.rounds), "maxItems": len(item.rounds)}
    prompt, number = load_resource(RESOURCE_FILES[0]), str(len(item.rounds))
    messages = fill_prompt(prompt, facts=facts, rounds=rounds_text, number=number)
    overall = {"type": "number", "minimum": 0, "maximum": MAX_SCORE}
    return Question(messages, object_schema(rounds=rounds, overall=overall))


def _build_judgement(answer: Answer) -> Judgement:
    if answer.value is None:
        return Judgement(None, problem=f"{UNSCORED}: {answer.problem or 'no answer'}", raw=answer.raw)
    rounds = tuple({name: round_scores[name] for name in ("correctness", "completeness", "relevance", "note")}
                   for round_scores in answer.value["rounds"])  # fmt: skip
    return Judgement(float(answer.value["overall"]), rounds)

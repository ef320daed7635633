"""The engine ``vllm``, as in the paper: a language model rewords instructions in the style of a persona."""

from collections.abc import Sequence

from cxr.base.resources import load_resource
from cxr.ils.paraphrase.engine import Engine, Rewording, Task
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.paraphrase.wording_checks import find_problem, list_lesion_names, list_place_names
from cxr.llm.asking import Question, ask
from cxr.llm.client import connect_lazily
from cxr.llm.messages import fill_prompt
from cxr.llm.options import ModelOptions
from cxr.llm.replies import object_schema, text_schema

RESOURCE_FILES = ("paraphrase/prompt.yaml",)
GPU = True
MAX_LETTERS = 400  # maximum number of characters of a wording, which stops a model that does not end


def load(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine. Its first request loads the model, and raises UserError if the model cannot be reached."""
    model = ModelOptions(**options.language_model)
    generate = connect_lazily(model, execution)

    def reword(tasks: Sequence[Task], persona: str) -> list[Rewording]:
        questions = [make_question(task, persona, options.per_persona) for task in tasks]
        rewordings = []
        for answer in ask(questions, generate, model):
            wordings = tuple(" ".join(text.split()) for text in answer.value["wordings"]) if answer.value else ()
            rewordings.append(Rewording(wordings, answer.problem, answer.raw, answer.attempts))
        return rewordings

    return Engine(reword, model.name)


def make_question(task: Task, persona: str, number: int) -> Question:
    """Return the question that asks the model for ``number`` wordings of an instruction in the style of a persona."""
    prompt = load_resource(RESOURCE_FILES[0])
    places = [" / ".join(list_place_names(location)) for location in task.meaning.location]
    slots = {"persona": prompt["personas"][persona], "instruction": task.text, "number": str(number)}
    slots |= {"places": "; ".join(places) or prompt["no_place"]}
    messages = fill_prompt(prompt, lesion=" / ".join(list_lesion_names(task.meaning.word)), **slots)
    schema = object_schema(
        wordings={"type": "array", "items": text_schema(MAX_LETTERS), "minItems": number, "maxItems": number}
    )
    return Question(messages, schema, lambda answer: find_problem(answer["wordings"], task))

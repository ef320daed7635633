"""The engine ``vllm``: a language model writes each conversation from the facts, as in the paper.

A reply must follow a JSON schema and pass the strict check. With ``check: json``, a reply must only follow the schema,
as in the authors' code. A conversation without a valid reply after all attempts is excluded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cxr.base.jobs import log
from cxr.base.resources import load_resource
from cxr.base.seeds import stable_hash
from cxr.base.tables import write_lines
from cxr.llm.answer_cache import record_replies, replay_replies
from cxr.llm.asking import Answer, Generate, Question, ask_each
from cxr.llm.client import connect_resumably
from cxr.llm.guards import INJECTION, addresses_the_model, fill_slots, neutralize
from cxr.llm.messages import fill_prompt
from cxr.llm.options import ModelOptions
from cxr.llm.replies import object_schema, text_schema
from cxr.radvlm.conversations import check, engine
from cxr.radvlm.conversations.check import ROLES
from cxr.radvlm.conversations.converse import BATCH_SIZE, read_requests
from cxr.radvlm.conversations.engine import Conversation, ConversationOptions, Engine, Fault, Request, Turn
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.samples import format_boxes
from cxr.radvlm.statements import split_batches

RESOURCE_FILES = ("radvlm/conversation_prompts.yaml", "radvlm/statements.yaml", "lexicon")
GPU = True
FIELDS = ("rounds", "question", "answer")
ASKING_RULE = "radvlm_conversations_told"  # workflow rule whose job asks the model for all parts
QUESTION, ANSWER = 300, 800  # maximum length of a question and of an answer, in characters
QUARANTINED = "quarantined"
SEEDS = 2**31  # number of possible sampling seeds
_FAULT = re.compile(rf"^({'|'.join((*check.REASONS, engine.TOO_FEW))})(?:: (.*))?$")


def load(options: ConversationOptions, execution: Mapping) -> Engine:
    """Return the engine. Its model runs in this job, unless ``execution`` has files of ``replies`` from another job."""
    if execution.get("replies"):
        return build_engine(options, replay_replies(execution["replies"], ASKING_RULE))
    return build_engine(options, connect_resumably(ModelOptions(**options.model), execution))


def build_engine(options: ConversationOptions, generate: Generate) -> Engine:
    """Return an engine that gets the model's replies from ``generate``."""
    model = ModelOptions(**options.model)

    def converse(requests: Sequence[Request]) -> list[Conversation | Fault]:
        questions = {number: build_question(request, options) for number, request in enumerate(requests)}
        answers = ask_each(questions, generate, model)
        return [_build_conversation(request, answers[number]) for number, request in enumerate(requests)]

    return Engine(converse, model.name)


def build_question(request: Request, options: ConversationOptions) -> Question | Answer:
    """Return the question for a conversation, or at once an Answer if facts are missing or give orders to a model."""
    facts = request.facts
    texts = [*facts.sentences.values(), *(phrase.text for phrase in facts.phrases)]
    if not texts:
        return Answer(problem=engine.TOO_FEW)
    if addresses_the_model("\n".join(texts), FIELDS):
        return Answer(problem=INJECTION)
    prompt = load_resource(RESOURCE_FILES[0])[request.kind]
    least, most = engine.ROUNDS
    system = fill_slots(prompt["system"], least=str(least), most=str(most))
    messages = fill_prompt(prompt | {"system": system}, facts=describe_facts(facts, request.grounded))
    item = object_schema(question=text_schema(QUESTION), answer=text_schema(ANSWER))
    schema = object_schema(rounds={"type": "array", "items": item, "minItems": least, "maxItems": most})
    # the sampling seed does not depend on batch or order
    seed = stable_hash(options.seed, facts.source, facts.image_id, request.grounded, request.number) % SEEDS
    if options.check != "strict":
        return Question(messages, schema, seed=seed)
    evidence = check.gather_evidence(facts)

    def contradiction(answer: Mapping) -> str | None:
        turns = ((turn["question"], turn["answer"]) for turn in answer["rounds"])
        messages = [{"role": role, "text": text} for turn in turns for role, text in zip(ROLES, turn, strict=True)]
        fault = check.find_fault(messages, evidence, request.grounded)
        return None if fault is None else f"{fault.reason}: {fault.detail}"

    return Question(messages, schema, contradiction, seed=seed)


def describe_facts(facts: ImageFacts, grounded: bool) -> str:
    """Return the known facts as text for the prompt. ``grounded``: with the boxes of phrases."""
    lines = [f"- report: {neutralize(' '.join(facts.sentences.values()))}"] if facts.sentences else []
    lines += [f"- abnormalities: {', '.join(facts.present)}"] if facts.present else []
    lines += [f"- view: {facts.view}"] if facts.view else []
    lines += [f"- sex: {facts.sex}"] if facts.sex else []
    for phrase in facts.phrases if grounded else ():
        lines.append(f"- box of “{neutralize(phrase.text)}”: {format_boxes(phrase.boxes)}")
    return "\n".join(lines)


def _build_conversation(request: Request, answer: Answer) -> Conversation | Fault:
    if answer.value is None:
        problem = answer.problem or "no answer"
        hit = _FAULT.match(problem)  # a reason with its detail
        return Fault(hit[1], hit[2] or "") if hit else Fault(QUARANTINED, problem)
    texts = [(turn["question"].strip(), turn["answer"].strip()) for turn in answer.value["rounds"]]
    phrases = request.facts.phrases if request.grounded else ()
    answers, boxes = engine.replace_boxes_by_slots([text for _, text in texts], phrases)
    turns = tuple(Turn(question_text, text) for (question_text, _), text in zip(texts, answers, strict=True))
    ids = tuple(f"{request.facts.study_id}#{number}" for number in request.facts.sentences)
    return Conversation(turns, boxes, (), (*request.facts.ids.values(), *ids))


def run(
    *, files: Sequence[str], replies: Sequence[str], works: Sequence[Mapping], options: ConversationOptions,
    execution: Mapping, code: str = "",
) -> None:  # fmt: skip
    """Write the model's replies about parts of sources to the files ``replies``, one file for each part in ``works``:
    {source, part, kinds: kinds of conversations, files: inputs of :func:`converse.read_requests`}."""
    del files  # inputs of the job, which ``works`` names too
    folder = Path(replies[0]).parents[1] / "answers" / "-".join(dict.fromkeys(work["part"] for work in works))
    resumable_execution = dict(execution) | {"answers": str(folder), "code": code}
    generate = connect_resumably(ModelOptions(**options.model), resumable_execution)
    for work, output in zip(works, replies, strict=True):
        log.info("radvlm_conversations: asking the model about %s, %s", work["source"], work["part"])
        source_options = replace(options, kinds=work["kinds"])
        requests = read_requests(**work["files"], part=work["part"], options=source_options)
        write_lines(output, _reply_lines(requests, source_options, generate), checked=True)


def _reply_lines(requests: Iterable[Request], options: ConversationOptions, generate: Generate) -> Iterator[dict]:
    lines: list[dict] = []
    converse = build_engine(options, record_replies(generate, lines)).converse
    for batch in split_batches(requests, BATCH_SIZE):
        converse(batch)
        yield from lines
        lines.clear()

"""Ask a language model that sees images to write the queries of shards, with one question per image.

The output has a JSON line per image. ``wanted``: number of requested queries. ``targets``: [[number of the query, its
regions]], or null if the model chose the regions. ``lost``: [[number of the query, reason]] of queries for which no
regions were found. ``described``: whether the image's description was sent. ``answer``: the model's reply, null if no
reply is usable; then ``problem`` says why, and ``raw`` is the last reply. ``attempts``: number of requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cxr.base.seeds import make_rng
from cxr.base.tables import write_lines
from cxr.llm.asking import Answer, Question
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.messages import PromptImage, fill_prompt
from cxr.llm.replies import object_schema
from cxr.medground import asking
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import GRID_CORNERS, count_queries
from cxr.medground.logic.scene import build_scene
from cxr.medground.logic.text import FIELDS, find_text_fault
from cxr.medground.queries.forms import KINDS, FormSearch, Target, target_kind
from cxr.medground.queries.written_queries import parse_raw_queries

QUERIES_FACTOR = 4  # most queries of a model that chooses targets, as a multiple of the requested number
RETRIED_FAULTS = ("markup", "speaks_to_model", "coordinates")
"""Faults of a text for which the model is asked again. The verification rejects texts with other faults."""
TRIES = 12  # draws until a target is new


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(asking.AskingOptions):
    """Options of the model, and those settings of ``medground.queries`` on which the questions depend."""

    per_image: int
    families: Sequence[str]
    selection: str
    form: str


def build_request(subject: asking.Subject, options: QuestionOptions, prompts: asking.Prompts) -> asking.Request:
    """Return the request for queries about an image. The model is not asked if no target (set of regions to ask for)
    could be sampled, or if the description contains instructions to a model."""
    image, facts, source = subject.image, subject.facts, subject.source
    candidates = [row for row in subject.rows if row["candidate"]]
    num_queries = count_queries(len(candidates), options.per_image)
    targets, lost = None, []
    if options.selection == "ours":
        key = (options.seed, source, image["image_id"])
        decider = Decider(build_scene(image, subject.rows, facts, subject.picture.shape[0]))
        forms = FormSearch(decider, options.families, make_rng(*key, "forms")).run()
        targets, lost = sample_targets(forms, num_queries, *key, "targets")
    fields = {
        "image_id": image["image_id"],
        "wanted": num_queries,
        "targets": targets if targets is None else [[at, list(regions)] for at, regions in targets],
        "lost": [list(pair) for pair in lost],
        "described": bool(image["description"]),
    }
    if targets == []:
        return asking.Request(fields, Answer(value={"queries": []}))
    if addresses_the_model(f"{image['description']}\n{facts.modality}", FIELDS):
        return asking.Request(fields, Answer(problem=INJECTION))
    box_by_number = {row["region"] + 1: [row[side] for side in GRID_CORNERS] for row in candidates}
    target_numbers = [[region + 1 for region in regions] for _, regions in targets or ()]
    slot_values = {
        "modality": neutralize(facts.modality or image["domain"]),
        "table": asking.measurement_table(candidates, facts.classes, image["domain"]),
        "description": neutralize(image["description"]) or prompts.wordings["no_description"],
        "targets": "".join(
            f"\n{'boxes' if len(numbers) > 1 else 'box'} {', '.join(map(str, numbers))}" for numbers in target_numbers
        ),
        "count": str(num_queries),
        "boxes": "".join(f"\n{number}: {box}" for number, box in box_by_number.items()),
    }
    prompt = prompts.prompt("generate", image["domain"], "user" if targets else "user_free")
    images = [PromptImage(subject.picture), asking.draw_boxes(subject.picture, candidates, is_numbered=True)]
    messages, seed = fill_prompt(prompt, images, **slot_values), options.seed_of(source, image["image_id"])
    if options.form == "question_answer":
        question = Question(messages, None, lambda text: None if list(parse_raw_queries(text)) else "no question", seed)
    else:
        schema, refusals = answer_schema(list(box_by_number), targets, num_queries), prompts.words("refusals")
        question = Question(messages, schema, lambda answer: find_contradiction(answer, refusals), seed)
    return asking.Request(fields, question)


def answer_schema(numbers: list[int], targets: Sequence[tuple[int, Sequence[int]]] | None, num_queries: int) -> dict:
    """Return the JSON schema of an answer, a list of texts, each with the numbers of its boxes. The boxes are those of
    ``targets``, in this order. If ``targets`` is None, the model chooses them from ``numbers``."""
    text = {"type": "string", "maxLength": asking.MAX_CHARACTERS}  # empty if the model declines
    if targets is None:
        regions = {"type": "array", "items": {"enum": numbers}, "minItems": 1, "maxItems": len(numbers)}
        most = QUERIES_FACTOR * num_queries
        items = {"items": object_schema(text=text, targets=regions), "minItems": 1, "maxItems": most}
    else:
        numbers_by_target = [[region + 1 for region in target] for _, target in targets]
        fixed = [object_schema(text=text, targets={"const": numbers}) for numbers in numbers_by_target]
        items = {"prefixItems": fixed, "items": False, "minItems": len(fixed), "maxItems": len(fixed)}
    return object_schema(queries={"type": "array"} | items)


def find_contradiction(answer: dict, refusals: Sequence[str] = ()) -> str | None:
    """Return why an answer is unusable although it fits the schema, or None. The reason does not quote the answer.
    ``refusals``: beginnings of texts with which models decline."""
    seen_keys: set[tuple] = set()
    for number, query in enumerate(answer["queries"]):
        text = query["text"].strip()
        if len(set(query["targets"])) < len(query["targets"]):
            return f"queries.{number} names a target twice"
        fault = find_text_fault(text) if text else None
        if fault and fault[0] in RETRIED_FAULTS:
            return f"queries.{number} has the fault {fault[0]}"
        if text.lower().replace("’", "'").startswith(tuple(refusals)):
            return f"queries.{number} is a refusal"
        key = (text.lower(), *sorted(query["targets"]))
        if text and key in seen_keys:
            return f"queries.{number} repeats an earlier query"
        seen_keys.add(key)
    return None


def run(
    *, sources: Sequence[str], images: Sequence[str], regions: Sequence[str], answers: Sequence[str],
    options: QuestionOptions, execution: dict, code: str = "", compute: dict | None = None,
    prompts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the model's answers about every image with regions to the files ``answers``, one per shard. The model is
    loaded once. Raises UserError if it cannot be reached, and Broken if none of its answers can be used."""
    session = asking.ModelSession(options, execution, answers, code, compute, prompts)
    for files, output in zip(session.list_shards(sources, images, regions), answers, strict=True):
        lines = session.ask(files, lambda subject: [build_request(subject, options, session.prompts)])
        write_lines(output, lines, checked=True)


def sample_targets(
    forms: FormSearch, num_queries: int, *key: object
) -> tuple[list[tuple[int, Target]], list[tuple[int, str]]]:
    """Return ([(number, target)], [(number, reason)]) for the requested queries of an image. The targets (sets of
    regions) are distinct. The second list has the queries without a target. ``key``: parts of the seed."""
    by_kind: dict[str, list[Target]] = defaultdict(list)
    for target in sorted(forms.by_target):
        by_kind[target_kind(target, forms.decider)].append(target)
    targets, lost, kinds = [], [], sorted(filter(None, by_kind))
    for number in range(num_queries):
        draw, used = make_rng(*key, number), {target for _, target in targets}
        for _ in range(TRIES if kinds else 0):
            (kind,) = draw.choices(kinds, [KINDS[name] for name in kinds])
            if (target := draw.choice(by_kind[kind])) not in used:
                targets.append((number, target))
                break
        else:
            lost.append((number, "budget" if forms.spent else "undecidable"))
    return targets, lost

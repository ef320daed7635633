"""Tasks of an instruction mix. A task yields questions about images, each with the content of its answer (units)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from cxr.base.seeds import make_rng
from cxr.instructions.record import Turn
from cxr.radvlm.instructions.source_block import BOX, LABEL, PHRASE, REGION, NamedBoxes, SourceBlock
from cxr.radvlm.instructions.wordings import load_spoken_names
from cxr.radvlm.labels import ABSENT as DENIED
from cxr.radvlm.labels import load_label_names as label_names
from cxr.radvlm.samples import SEG, box_slot, join_in_words

COORDINATES = re.compile(r"\[\s*\d*\.?\d+\s*(?:,\s*\d*\.?\d+\s*){3}\]|" + re.escape(SEG))
"""Text that a phrase must not contain: written boxes and [SEG]."""
REPLACED_CHARACTERS = {"\n": " ", "\r": " ", '"': "'", "“": "'", "”": "'", "{": "(", "}": ")", "<": "(", ">": ")"}


@dataclass(frozen=True)
class Part:
    """The content of a question and its answer in one pass. Each pass asks in other words."""

    kind: str  # kind of answer: some (with findings), none (without), or answers (the only kind of its task)
    slots: Mapping[str, str]  # {slot of the wordings: text}
    boxes: Mapping[str, tuple] = field(default_factory=dict)  # {slot name: boxes}
    facts: tuple[str, ...] = ()  # ids of the supporting facts
    target: str | None = None  # region, finding or phrase that the question is about
    mask_ids: tuple[str, ...] = ()
    engine: str = ""  # engine that wrote the text
    turns: tuple[Turn, ...] = ()  # complete turns, if no wordings are needed


@dataclass(frozen=True)
class Unit:
    """An image with a question about it and the answer."""

    image_id: str
    key: str  # seed for choosing wordings
    parts: Sequence[Part]  # one per pass, or one for all passes
    repeats_part: bool = True  # whether one part is used in all passes

    def passes(self, repeat: int, is_train: bool) -> Iterator[tuple[int, Part]]:
        """Return (number, part) of ``repeat`` passes. Outside train, a part that serves all passes is used once."""
        parts = [self.parts[0]] * (repeat if is_train else 1) if self.repeats_part else self.parts[:repeat]
        return enumerate(parts)


@dataclass(frozen=True)
class TaskOptions:
    """Settings that all tasks share."""

    seed: int
    exclude: Callable[[str, Sequence[str]], None] = lambda reason, ids: None  # called with ids of excluded facts
    pairs: frozenset[str] = frozenset()  # ids of the selected ILS pairs


def report_generation(inputs: SourceBlock, _settings: TaskOptions) -> Iterator[Unit]:
    """Yield a question about each image of a study with an edited report. This report is the answer."""
    for line in inputs.texts:
        for image_id in filter(inputs.images.__contains__, line["image_ids"]):
            yield Unit(image_id, image_id, (Part("answers", {"report": line["text"]}, engine=line["engine"]),))


def classification(inputs: SourceBlock, settings: TaskOptions) -> Iterator[Unit]:
    """Yield a question about each labelled image. The answer lists all present labels except "No Finding"."""
    for image_id in sorted(filter(inputs.images.__contains__, inputs.stated)):
        finding_names = [load_spoken_names().say(name) for name in inputs.present[image_id]]
        slots = {"findings": join_in_words(finding_names), "number": str(len(finding_names))}
        part = Part("some" if finding_names else "none", slots, facts=inputs.stated[image_id])
        yield Unit(image_id, image_id, (part,))


def anatomical_grounding(inputs: SourceBlock, settings: TaskOptions) -> Iterator[Unit]:
    """Yield a :class:`Unit` for each image. Each pass asks for the box of another region, in random order."""
    region_names = set(load_spoken_names().regions)
    regions_by_image: dict[str, list[NamedBoxes]] = {}
    for region in inputs.named_boxes(REGION):
        _exclude_flat_boxes(region, settings)
        if region.boxes and region.name in region_names:
            regions_by_image.setdefault(region.image_id, []).append(region)
    for image_id, regions in regions_by_image.items():
        make_rng(settings.seed, "regions", inputs.source, image_id).shuffle(regions)
        parts = [_grounding_part(region, "region") for region in regions]
        yield Unit(image_id, image_id, parts, repeats_part=False)


def abnormality_grounding(inputs: SourceBlock, settings: TaskOptions) -> Iterator[Unit]:
    """Yield a question about each finding of each image. The answer has all boxes of the finding."""
    for finding in inputs.named_boxes(BOX):
        _exclude_flat_boxes(finding, settings)
        if finding.boxes:
            yield Unit(finding.image_id, finding.key, (_grounding_part(finding, "finding"),))


def abnormality_detection(inputs: SourceBlock, settings: TaskOptions) -> Iterator[Unit]:
    """Yield a question about each image, whose answer has all findings. If a finding lacks a box, exclude the image."""
    findings_by_image: dict[str, list[NamedBoxes]] = {}
    _, has_labels = inputs.summary
    for finding in inputs.named_boxes(BOX):
        findings_by_image.setdefault(finding.image_id, []).append(finding)
    for image_id in sorted(inputs.images):
        boxed_findings = [finding for finding in findings_by_image.get(image_id, []) if finding.boxes]
        boxes = {finding.name: finding.boxes for finding in boxed_findings}
        facts = tuple(fact for finding in boxed_findings for fact in finding.facts)
        present_findings = {*inputs.present.get(image_id, ())} & {*label_names().findings}
        flat = any(finding.flat and not finding.boxes for finding in findings_by_image.get(image_id, []))
        # an image without boxes was examined if it has labels, or if its source has none at all
        is_known = boxed_findings or image_id in inputs.stated or not has_labels
        if present_findings - boxes.keys() or flat or image_id not in inputs.sizes or not is_known:
            settings.exclude("no_boxes", facts)
            continue
        items = [f"{load_spoken_names().say(name)} {box_slot(name)}" for name in boxes]
        slots = {"items": "; ".join(items), "number": str(len(boxed_findings))}
        yield Unit(image_id, image_id, (Part("some" if boxed_findings else "none", slots, boxes, facts),))


def phrase_grounding(inputs: SourceBlock, settings: TaskOptions) -> Iterator[Unit]:
    """Yield a question about each edited phrase. The answer has the boxes of the phrase."""
    text_by_phrase = {(line["image_id"], line["group"]): line["text"] for line in inputs.phrases}
    for phrase in inputs.named_boxes(PHRASE):
        _exclude_flat_boxes(phrase, settings)
        text = text_by_phrase.get((phrase.image_id, phrase.key))
        if text is None:
            settings.exclude("nothing_left", phrase.facts)
        elif COORDINATES.search(text):
            settings.exclude("bad_form", phrase.facts)
        elif phrase.boxes:
            words = clean_phrase(text)
            slots, boxes = {"phrase": words, "boxes": box_slot("phrase")}, {"phrase": phrase.boxes}
            yield Unit(phrase.image_id, phrase.key, (Part("some", slots, boxes, phrase.facts, target=words),))


def conversations(inputs: SourceBlock, _settings: TaskOptions, grounded: bool) -> Iterator[Unit]:
    """Yield each conversation with boxes (``grounded``) or each one without, with unchanged turns."""
    for line in inputs.conversations:
        if line["grounded"] == grounded and line["image_id"] in inputs.images:
            turns = tuple(Turn(turn["question"], turn["answer"], turn.get("wording", "")) for turn in line["turns"])
            boxes = {name: tuple(map(tuple, slot_boxes)) for name, slot_boxes in line["boxes"].items()}
            part = Part("", {}, boxes, tuple(line["facts"]), None, tuple(line["mask_ids"]), line["engine"], turns)
            yield Unit(line["image_id"], line["conversation_id"], (part,))


def find_absences(inputs: SourceBlock) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (image id, absent finding, fact ids). The finding has boxes in other images of the source. A finding is
    absent if a label or an answer of the ILS dataset denies it or, in a source without labels, if it has no box."""
    boxed_names, has_labels = inputs.summary
    present_findings = set(inputs.facts.filter(kind=BOX).select("image_id", "name").unique().iter_rows())
    present_findings |= {(image_id, name) for image_id, names in inputs.present.items() for name in names}
    denied: dict[tuple[str, str], tuple[str, ...]] = {}
    if not has_labels:
        denied = {(image_id, name): () for image_id in inputs.images for name in boxed_names}
    for pair in inputs.pairs if has_labels else ():
        if not pair["seg"] and pair["type"] == "global":
            for name in label_names().lesions.get(pair["target"], ()):
                denied[pair["image_id"], name] = (pair["pair_id"],)
    is_boxed = pl.col("name").is_in(boxed_names)
    labels = inputs.facts.filter(pl.col("reader").is_null(), is_boxed, kind=LABEL, stated=DENIED)
    for image_id, name, fact_id in labels.select("image_id", "name", "fact_id").iter_rows():
        denied.setdefault((image_id, name), (fact_id,))
    for (image_id, name), facts in sorted(denied.items()):
        if image_id in inputs.images and name in boxed_names and (image_id, name) not in present_findings:
            yield image_id, name, facts


def absent_unit(image_id: str, name: str, facts: tuple[str, ...]) -> Unit:
    """Return the question where an absent finding is. ``facts``: ids of the facts that deny the finding."""
    words = load_spoken_names().say(name)
    slots = {"finding": words, "a finding": load_spoken_names().with_article(words)}
    return Unit(image_id, f"absent/{image_id}/{name}", (Part("none", slots, facts=facts, target=name),))


def ils_pairs(inputs: SourceBlock, settings: TaskOptions, form: str) -> Iterator[Unit]:
    """Yield each selected instruction of the ILS dataset, answered in the ``form`` ``boxes`` or ``seg`` (mask)."""
    for pair in (pair for pair in inputs.pairs if pair["pair_id"] in settings.pairs):
        mask, name = pair["mask_id"] or "", pair["target"]
        boxes = inputs.boxes_by_mask.get(mask, ()) if pair["seg"] else ()
        if form == "seg":
            turns = (Turn(pair["instruction"], pair["answer"], f"ils:{pair['type']}"),)
            part = Part("", {}, facts=(pair["pair_id"],), target=name, mask_ids=(mask,), turns=turns)
        elif pair["seg"] and not boxes:
            settings.exclude("no_area", [pair["pair_id"]])
            continue
        else:
            answer_text = pair["answer"].replace(SEG, "").strip()
            slots = {"instruction": pair["instruction"], "answer": answer_text}
            if boxes:
                slots |= {"boxes": box_slot(name), "answer": f"{answer_text} " if answer_text else ""}
            boxes_by_slot = {name: boxes} if boxes else {}
            part = Part("some" if boxes else "none", slots, boxes_by_slot, (pair["pair_id"],), name)
        yield Unit(pair["image_id"], pair["pair_id"], (part,))


def balance_pairs(pairs: Iterable[Mapping], seed: int) -> frozenset[str]:
    """Return the ids of all ILS pairs with a mask, and of at most as many random pairs of each split without a mask."""
    ids_by_split: dict[str, tuple[list[str], list[str]]] = {}
    for pair in pairs:
        ids_by_split.setdefault(pair["split"], ([], []))[bool(pair["seg"])].append(pair["pair_id"])
    selected_ids: set[str] = set()
    for split, (negative, positive) in ids_by_split.items():
        number = min(len(negative), len(positive))
        selected_ids.update(positive, make_rng(seed, "ils", split).sample(sorted(negative), number))
    return frozenset(selected_ids)


def clean_phrase(text: str) -> str:
    """Return a phrase for use inside quotes: without double quotes, brackets, line breaks and its final stop."""
    safe_text = "".join(REPLACED_CHARACTERS.get(letter, letter) for letter in text)
    return " ".join(safe_text.split()).rstrip(".")


def _grounding_part(named_boxes: NamedBoxes, slot_name: str) -> Part:
    words, name = load_spoken_names().say(named_boxes.name), named_boxes.name
    slots = {slot_name: words, f"a {slot_name}": load_spoken_names().with_article(words), "boxes": box_slot(name)}
    return Part("some", slots, {name: named_boxes.boxes}, named_boxes.facts, target=name)


def _exclude_flat_boxes(named_boxes: NamedBoxes, settings: TaskOptions) -> None:
    if named_boxes.flat:
        settings.exclude("no_area", named_boxes.flat)


ABSENT, PRESENT = "absent_grounding", "abnormality_grounding"
UNITS_BY_TASK: dict[str, Callable[[SourceBlock, TaskOptions], Iterator[Unit]]] = {
    "report_generation": report_generation,
    "classification": classification,
    "anatomical_grounding": anatomical_grounding,
    PRESENT: abnormality_grounding,
    "abnormality_detection": abnormality_detection,
    "phrase_grounding": phrase_grounding,
    "conversation": partial(conversations, grounded=False),
    "conversation_grounded": partial(conversations, grounded=True),
    "ils_grounding": partial(ils_pairs, form="boxes"),
    "ils_segmentation": partial(ils_pairs, form="seg"),
}
"""{task: function that yields its questions}, without the task ABSENT, whose questions depend on those of PRESENT."""
LINES_BY_TASK = {
    "report_generation": "texts", "phrase_grounding": "phrases", "conversation": "conversations",
    "conversation_grounded": "conversations", ABSENT: "pairs", "ils_grounding": "pairs", "ils_segmentation": "pairs",
}  # fmt: skip
"""{task: kind of lines that it reads in addition to facts}."""
TASKS_BY_FACT = {
    "label": ("classification", ABSENT), "region": ("anatomical_grounding",),
    "box": (PRESENT, "abnormality_detection"), "phrase": ("phrase_grounding", "conversation_grounded"),
}  # fmt: skip
"""{kind of fact: tasks that use such facts}."""

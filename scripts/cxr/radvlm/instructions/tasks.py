"""Tasks: what of a source is asked, with the slots of its wordings. A task yields units, whatever the passes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from cxr.base.seeds import rng
from cxr.instructions.record import Turn
from cxr.radvlm.instructions.given import BOX, LABEL, PHRASE, REGION, Given, Named
from cxr.radvlm.instructions.names import listed, names
from cxr.radvlm.labels import ABSENT as DENIED
from cxr.radvlm.labels import names as label_names
from cxr.radvlm.samples import SEG, slot

FILE = "file"
"""radvlm.instructions.regions: every region that a source has."""
COORDINATES = re.compile(r"\[\s*\d*\.?\d+\s*(?:,\s*\d*\.?\d+\s*){3}\]|" + re.escape(SEG))
"""What a phrase that is asked may not hold."""
WORD = {"\n": " ", "\r": " ", '"': "'", "“": "'", "”": "'", "{": "(", "}": ")", "<": "(", ">": ")"}


@dataclass(frozen=True)
class Part:
    """What is asked in a pass. kind: of the answer's wordings; slots: of question and answer; boxes: {slot: boxes};
    asked: the region, finding or phrase; facts: ids it rests on; given: turns that are worded already.
    """

    kind: str
    slots: Mapping[str, str]
    boxes: Mapping[str, tuple] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    asked: str | None = None
    mask_ids: tuple[str, ...] = ()
    engine: str = ""
    given: tuple[Turn, ...] = ()


class Parts(Sequence[Part]):
    """Parts that are made where they are asked for: few passes ask few of many."""

    def __init__(self, make: Callable[[Named], Part], of: Sequence[Named]):
        self._make, self._of = make, of

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, number: int) -> Part:
        return self._make(self._of[number])


@dataclass(frozen=True)
class Unit:
    """A pair: an image with what is asked of it. key: what its wordings are drawn for; parts: one for each pass, or one
    that every pass asks; again: whether the passes ask the same part.
    """

    image_id: str
    key: str
    parts: Sequence[Part]
    again: bool = True

    def part(self, number: int) -> Part | None:
        """Return what the pass ``number`` asks; None where it has nothing left to ask."""
        if self.again:
            return self.parts[0]
        return self.parts[number] if number < len(self.parts) else None


@dataclass(frozen=True)
class How:
    """Settings of tasks. regions: regions29 or file; case: of names; seed: of draws; note: told what is left out, as
    (reason, ids of facts); pairs: ids of the pairs that are asked.
    """

    regions: str
    case: str
    seed: int
    note: Callable[[str, Sequence[str]], None] = lambda reason, ids: None
    pairs: frozenset[str] = frozenset()


def report_generation(given: Given, how: How) -> Iterator[Unit]:
    """Yield the single-image text of each image of a study."""
    del how
    for line in given.texts:
        for image_id in filter(given.images.__contains__, line["image_ids"]):
            yield Unit(image_id, image_id, (Part("answers", {"report": line["text"]}, engine=line["engine"]),))


def classification(given: Given, how: How) -> Iterator[Unit]:
    """Yield the present labels of each image that has labels: devices too, No Finding never."""
    for image_id in sorted(filter(given.images.__contains__, given.stated)):
        found = [names().say(name, how.case) for name in given.present[image_id]]
        slots = {"findings": listed(found), "number": str(len(found))}
        yield Unit(image_id, image_id, (Part("some" if found else "none", slots, facts=given.stated[image_id]),))


def anatomical_grounding(given: Given, how: How) -> Iterator[Unit]:
    """Yield the regions of each image in a drawn order, one for each pass."""
    asked = None if how.regions == FILE else set(names().regions)
    found: dict[str, list[Named]] = {}
    for one in given.named(REGION):
        _tell_flat(one, how)
        if one.boxes and (asked is None or one.name in asked):
            found.setdefault(one.image_id, []).append(one)
    for image_id, regions in found.items():
        rng(how.seed, "regions", given.source, image_id).shuffle(regions)
        yield Unit(image_id, image_id, Parts(lambda one: _boxed(one, "region", how), regions), again=False)


def abnormality_grounding(given: Given, how: How) -> Iterator[Unit]:
    """Yield each named finding of an image with all its boxes."""
    for one in given.named(BOX):
        _tell_flat(one, how)
        if one.boxes:
            yield Unit(one.image_id, one.key, (_boxed(one, "finding", how),))


def abnormality_detection(given: Given, how: How) -> Iterator[Unit]:
    """Yield all findings of each image with their boxes, or that there is none.

    An image of which a label says a finding that has no box is left out: the list would be incomplete.
    """
    known, found = label_names(), {}
    for one in given.named(BOX):
        found.setdefault(one.image_id, []).append(one)
    for image_id in sorted(given.images):
        held = [one for one in found.get(image_id, []) if one.boxes]
        boxed = {one.name for one in held}
        missing = [name for name in given.present.get(image_id, ()) if name in known.findings and name not in boxed]
        flat = any(one.flat and not one.boxes for one in found.get(image_id, []))
        if missing or flat or image_id not in given.sizes or not (held or _read(given, image_id)):
            how.note("no_boxes", [fact for one in held for fact in one.facts])
            continue
        items = "; ".join(f"{names().say(one.name, how.case)} {slot(one.name)}" for one in held)
        slots = {"items": items, "number": str(len(held))}
        boxes, facts = {one.name: one.boxes for one in held}, tuple(fact for one in held for fact in one.facts)
        yield Unit(image_id, image_id, (Part("some" if held else "none", slots, boxes, facts),))


def phrase_grounding(given: Given, how: How) -> Iterator[Unit]:
    """Yield each phrase with its boxes, as the stage filtered has left its words."""
    told = {(line["image_id"], line["group"]): line["text"] for line in given.phrases}
    for one in given.named(PHRASE):
        _tell_flat(one, how)
        text = told.get((one.image_id, one.key))
        if text is None:
            how.note("nothing_left", one.facts)
        elif COORDINATES.search(text):
            how.note("bad_form", one.facts)
        elif one.boxes:
            words = plain(text)
            slots, boxes = {"phrase": words, "boxes": slot("phrase")}, {"phrase": one.boxes}
            yield Unit(one.image_id, one.key, (Part("some", slots, boxes, one.facts, asked=words),))


def conversations(given: Given, how: How, grounded: bool) -> Iterator[Unit]:
    """Yield the conversations of a kind, whose turns are worded already."""
    del how
    for line in given.conversations:
        if line["grounded"] == grounded and line["image_id"] in given.images:
            turns = tuple(Turn(one["question"], one["answer"], one.get("wording", "")) for one in line["turns"])
            boxes = {name: tuple(map(tuple, held)) for name, held in line["boxes"].items()}
            part = Part("", {}, boxes, tuple(line["facts"]), None, tuple(line["mask_ids"]), line["engine"], turns)
            yield Unit(line["image_id"], line["conversation_id"], (part,))


def absent(given: Given) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (image, finding, facts) of findings that an image does not have, of those that the source has boxes of.

    With labels: what the dataset's global negatives, or the report, deny. Without: what nobody drew.
    """
    known = label_names()
    drawn = given.facts.filter(kind=BOX).select("image_id", "name").unique()
    held = {(image_id, name) for image_id, name in drawn.iter_rows()}
    held |= {(image_id, name) for image_id, some in given.present.items() for name in some}
    asked = given.whole.boxed
    if not given.whole.labelled:
        yield from ((one, name, ()) for one in sorted(given.images) for name in asked if (one, name) not in held)
        return
    denied: dict[tuple[str, str], tuple[str, ...]] = {}
    for pair in given.pairs:
        if not pair["seg"] and pair["type"] == "global":
            for name in known.lesions.get(pair["target"], ()):
                denied[pair["image_id"], name] = (pair["pair_id"],)
    labels = given.facts.filter(pl.col("reader").is_null(), pl.col("name").is_in(asked), kind=LABEL, stated=DENIED)
    for image_id, name, fact_id in labels.select("image_id", "name", "fact_id").iter_rows():
        denied.setdefault((image_id, name), (fact_id,))
    for (image_id, name), facts in sorted(denied.items()):
        if image_id in given.images and name in asked and (image_id, name) not in held:
            yield image_id, name, facts


def absent_unit(how: How, image_id: str, name: str, facts: tuple[str, ...]) -> Unit:
    """Return the question for a finding that is not there."""
    words = names().say(name, how.case)
    slots = {"finding": words, "a finding": names().with_article(words)}
    return Unit(image_id, f"absent/{image_id}/{name}", (Part("none", slots, facts=facts, asked=name),))


def ils(given: Given, how: How, form: str) -> Iterator[Unit]:
    """Yield the pairs of the ILS dataset, positives and as many negatives. form: boxes or seg.

    A negative has a [SEG] too, of an empty mask: its id is empty.
    """
    for pair in given.pairs:
        if pair["pair_id"] not in how.pairs:
            continue
        said = pair["answer"].replace(SEG, "").strip()
        mask = pair["mask_id"] or ""
        same = {"facts": (pair["pair_id"],), "asked": pair["target"]}
        if form == "seg":
            turns = (Turn(pair["instruction"], pair["answer"], f"ils:{pair['type']}"),)
            yield Unit(pair["image_id"], pair["pair_id"], (Part("", {}, mask_ids=(mask,), given=turns, **same),))
            continue
        name = pair["target"]
        boxes = given.areas.get(mask, ()) if pair["seg"] else ()
        if pair["seg"] and not boxes:
            how.note("no_area", [pair["pair_id"]])
            continue
        slots = {"instruction": pair["instruction"], "boxes": slot(name), "answer": f"{said} " if said else ""}
        if not pair["seg"]:
            slots = {"instruction": pair["instruction"], "answer": said}
        part = Part("some" if boxes else "none", slots, {name: boxes} if boxes else {}, **same)
        yield Unit(pair["image_id"], pair["pair_id"], (part,))


def balanced(pairs: Iterable[Mapping], seed: int) -> frozenset[str]:
    """Return the ids of the positive pairs of each split and of as many negatives, drawn by their ids."""
    held: dict[tuple[str, bool], list[str]] = {}
    for pair in pairs:
        held.setdefault((pair["split"], bool(pair["seg"])), []).append(pair["pair_id"])
    kept: set[str] = set()
    for split in sorted({split for split, _ in held}):
        positive, negative = held.get((split, True), []), sorted(held.get((split, False), []))
        kept.update(positive, rng(seed, "ils", split).sample(negative, min(len(negative), len(positive))))
    return frozenset(kept)


def plain(text: str) -> str:
    """Return a phrase as data within quotes: without quotes, brackets that mean a slot, line breaks and full stop."""
    told = "".join(WORD.get(letter, letter) for letter in text)
    return " ".join(told.split()).rstrip(".")


def _boxed(one: Named, what: str, how: How) -> Part:
    words = names().say(one.name, how.case)
    slots = {what: words, f"a {what}": names().with_article(words), "boxes": slot(one.name)}
    return Part("some", slots, {one.name: one.boxes}, one.facts, asked=one.name)


def _tell_flat(one: Named, how: How) -> None:
    if one.flat:
        how.note("no_area", one.flat)


def _read(given: Given, image_id: str) -> bool:
    """Whether the source has looked at an image without a box: its labels say so, or it has no labels at all."""
    return image_id in given.stated or not given.whole.labelled


ABSENT, PRESENT = "absent_grounding", "abnormality_grounding"
MAKERS: dict[str, Callable[[Given, How], Iterator[Unit]]] = {
    "report_generation": report_generation,
    "classification": classification,
    "anatomical_grounding": anatomical_grounding,
    PRESENT: abnormality_grounding,
    "abnormality_detection": abnormality_detection,
    "phrase_grounding": phrase_grounding,
    "conversation": partial(conversations, grounded=False),
    "conversation_grounded": partial(conversations, grounded=True),
    "ils_grounding": partial(ils, form="boxes"),
    "ils_segmentation": partial(ils, form="seg"),
}
"""{task: what yields its units}; those of absent_grounding are drawn after the lines of abnormality_grounding."""
LINES = {
    "report_generation": "texts", "phrase_grounding": "phrases", "conversation": "conversations",
    "conversation_grounded": "conversations", ABSENT: "pairs", "ils_grounding": "pairs", "ils_segmentation": "pairs",
}  # fmt: skip
"""{task: the lines that it reads}, besides facts."""
FACTS = {
    "label": ("classification", ABSENT), "region": ("anatomical_grounding",),
    "box": (PRESENT, "abnormality_detection"), "phrase": ("phrase_grounding", "conversation_grounded"),
}  # fmt: skip
"""{kind of facts: tasks that ask them}."""

"""Moves of the engine rules: questions, with their answers, that may come next in a conversation.

A move is available only if the facts support its answer and the conversation has not covered it yet. Templates are
sampled when a move is proposed but filled in only when it is chosen, because about one move in five is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cxr.radvlm.conversations.engine import ConversationRequest, Turn
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.topics import (
    ENLARGED_HEART,
    Subjects,
    Topic,
    lower_first,
    with_article,
)
from cxr.radvlm.conversations.wordings import Wordings, agree_with_plural, capitalize, use_plural_pronouns
from cxr.radvlm.labels import load_label_names
from cxr.radvlm.samples import box_slot, join_in_words

PLACE, SIZE, CAUSE, SURE, SIDE, BOX, MASK, QUOTED, MENTIONED = (
    "place", "size", "cause", "sure", "side", "box", "mask", "quoted", "mentioned",
)  # fmt: skip
SIDED_FINDINGS = ("pneumothorax", "pleural thickening", "scar", "nodule", "granuloma", "hydropneumothorax")
"""Findings, besides the lesion types, whose other side may be asked about."""
MAX_LISTED = 3
"""Most findings that an answer lists."""


class Offer(NamedTuple):
    """A question with its answer, not yet filled in; act and wording as in :class:`Turn`."""

    question: Callable[[], str]
    answer: Callable[[], str]
    act: str
    wording: str

    def to_turn(self) -> Turn:
        """Fill in question and answer."""
        return Turn(self.question(), self.answer(), self.act, self.wording)


class Move(NamedTuple):
    """A question and its answer that may come next.

    weight: relative probability of being drawn; mentions: the (topic or subject, aspect) pairs that it covers; topic:
    number of the topic under discussion afterwards; refers: it refers to an earlier answer; denies: its answer denies a
    finding; box, mask: number of the topic whose boxes or mask it gives; facts: fact ids.
    """

    offer: Offer
    weight: float
    mentions: tuple[tuple[object, str], ...] = ()
    topic: int | None = None
    refers: bool = False
    denies: bool = False
    box: int | None = None
    mask: int | None = None
    facts: tuple[str, ...] = ()


@dataclass
class DialogueState:
    """What a conversation has covered: (topic or subject, aspect) pairs, the current topic, and the turns."""

    mentioned: set = field(default_factory=set)
    topic: int | None = None
    turns: list[Turn] = field(default_factory=list)
    _wordings: set[str] = field(default_factory=set)

    def add(self, move: Move) -> None:
        self.turns.append(move.offer.to_turn())
        self.mentioned.update(move.mentions)
        self._wordings.add(move.offer.wording)
        self.topic = move.topic

    def was_asked(self, offer: Offer) -> bool:
        """True if the same question was asked before in the same wording."""
        return offer.wording in self._wordings and offer.question() in (turn.question for turn in self.turns)


class MoveGenerator:
    """Generates the moves about one image, in one register."""

    def __init__(
        self, request: ConversationRequest, subjects: Subjects, words: Wordings, register: str, rng: Random,
        segments: bool,
    ):  # fmt: skip
        """``segments``: ask for masks."""
        self.facts, self.grounded = request.facts, request.grounded
        self.subjects, self.words, self.register, self.rng, self.segments = subjects, words, register, rng, segments
        nouns = [topic.noun for topic in subjects.topics]
        self.is_unique = [nouns.count(noun) == 1 for noun in nouns]
        self.denials = [
            _Subject(
                "absent", None,
                {"finding": denial.noun, "a_finding": denial.noun if denial.is_mass else with_article(denial.noun)},
                1.4, ((denial.noun, MENTIONED),), True, denial.facts,
            )
            for denial in subjects.denials
        ]  # fmt: skip
        self.general_subjects = list(_general_subjects(subjects, request.facts))
        self.name_slots = [self._fill_names(*numbered_topic) for numbered_topic in enumerate(subjects.topics)]

    def opening(self) -> Move:
        """Return the first move: a general question, answered by the main findings or by their absence."""
        topics = self.subjects.topics
        if not topics:
            return self._nothing_found()
        topic_numbers = list(range(min(len(topics), self.rng.choice((1, 2, 2, 3)))))
        case = "found" if len(topic_numbers) == 1 else "several"
        texts, mentions = self._describe_topics(topic_numbers, full=0.4)
        turn = self._offer_findings(topic_numbers, "overview", case, texts)
        topic = topic_numbers[-1] if len(topic_numbers) == 1 else None
        return Move(turn, 1.0, mentions, topic, facts=self._facts_of(topic_numbers))

    def _nothing_found(self) -> Move:
        """Return an opening without findings: the lungs' or another organ's sentence, or the first neutral one."""
        organs = sorted(self.subjects.organs.items(), key=lambda item: item[0] != "lungs")
        absent = load_label_names().no_finding in self.facts.present and not self.subjects.has_unnamed
        case = "nothing" if absent else "quiet"
        for organ, (text, facts) in organs[:1]:
            if text:
                slots = {"sentence": text, "sentence_low": lower_first(text)}
                return Move(self._make_offer("overview", case, slots), 1.0, ((organ, MENTIONED),), facts=facts)
        return self._quiet(case)

    def _quiet(self, case: str) -> Move:
        """Return an opening with the first sentence that affirms nothing; its denials count as mentioned."""
        affirmed = {fact for topic in self.subjects.topics for fact in topic.facts}
        text_by_id = {f"{self.facts.study_id}#{number}": text for number, text in self.facts.sentences.items()}
        name, text = next((item for item in text_by_id.items() if item[0] not in affirmed), ("", ""))
        denials = [denial for denial in self.subjects.denials if name in denial.facts]
        mentions = tuple((denial.noun, MENTIONED) for denial in denials)
        if name in self.subjects.heart_facts:
            mentions = (*mentions, ("heart", MENTIONED), (ENLARGED_HEART, MENTIONED))
        turn = self._make_offer("overview", case, {"sentence": text, "sentence_low": lower_first(text)})
        return Move(turn, 1.0, mentions, denies=bool(denials), facts=(name,) if name else ())

    def candidates(self, state: DialogueState, last: bool) -> Iterator[Move]:
        """Yield the moves that may come next; the ``last`` one may be a summary."""
        if last and len(self.subjects.topics) > 1:
            yield from self._summary(state)
        for at, topic in enumerate(self.subjects.topics):
            if (at, MENTIONED) in state.mentioned:
                yield from self._follow_ups(at, topic, state)
            else:
                yield self._introduce(at, topic)
        if state.turns:
            yield from self._denials(state)
            for subject in self.general_subjects:
                if state.mentioned.isdisjoint(subject.mentions):
                    yield self._subject_move(subject)
            yield from self._terms(state)
            yield from self._anything_else(state)

    # ---- findings -------------------------------------------------------------------------------------------------
    def _introduce(self, at: int, topic: Topic) -> Move:
        full = self.rng.random() < 0.4
        slots = self.name_slots[at] | {"np": topic.describe(size=full, place=full, sure=True)}
        turn = self._make_offer("present", topic.hedge, slots, topic=topic)
        return Move(turn, 1.2, _mentioned_aspects(at, full, False), at, facts=topic.facts)

    def _fill_names(self, at: int, topic: Topic) -> dict[str, str]:
        the = topic.describe(size=False, place=not self.is_unique[at], article="the")
        the = the.replace("the probable ", "the ").replace("the possible ", "the ")
        single = self.words.nouns[topic.statement.entity].singular
        return {"finding": single, "a_finding": single if topic.is_mass else with_article(single), "the_finding": the}

    def _follow_ups(self, at: int, topic: Topic, state: DialogueState) -> Iterator[Move]:
        last, covered_aspects = state.topic == at, {aspect for subject, aspect in state.mentioned if subject == at}
        weight = 3.0 if last else 0.7

        def follow(act: str, case, aspect: str, slots: dict, weight: float = weight, **move_fields) -> Move:
            pronoun_act = f"{act}_it"
            pronoun = last and not topic.is_plural and pronoun_act in self.words.questions and self.rng.random() < 0.7
            turn = self._make_offer(act, case, self.name_slots[at] | slots, pronoun_act if pronoun else act, topic)
            mentions = ((at, aspect), (at, PLACE)) if aspect == BOX else ((at, aspect),)
            return Move(turn, weight, mentions, at, refers=pronoun or act == "side", facts=topic.facts, **move_fields)

        if self.grounded and topic.boxes:
            if BOX not in covered_aspects:
                name = topic.noun if self.is_unique[at] else f"{topic.noun} {at + 1}"
                slots = {"place": topic.place, "box": box_slot(name)}
                box_move = follow("box", None, BOX, slots, 4.0, box=at)
                yield self._with_box_answer(topic, box_move, PLACE in covered_aspects, slots)
        elif topic.place and PLACE not in covered_aspects:
            yield follow("where", None, PLACE, {"place": topic.place})
        if topic.size and SIZE not in covered_aspects:
            yield follow("size", None, SIZE, {"size": topic.size})
        if (topic.hedge or self.rng.random() < 0.35) and SURE not in covered_aspects:
            yield follow("sure", topic.hedge, SURE, {}, weight * (1.0 if topic.hedge else 0.4))
        if topic.cause and CAUSE not in covered_aspects:
            yield follow("cause", topic.cause_hedge, CAUSE, {"cause": topic.cause})
        if last and PLACE in covered_aspects and SIDE not in covered_aspects and self._is_one_sided(at, topic):
            (side,) = topic.sides
            yield follow("side", "one_side", SIDE, {"side": side, "other_side": "left" if side == "right" else "right"})
        if topic.mask_id and self.segments and MASK not in covered_aspects:
            yield follow(
                "segment", None, MASK, {"the_np": topic.describe(size=False, article="the")}, weight * 0.6, mask=at
            )
        if covered_aspects == {MENTIONED} and len(topic.sentence.split()) > 5:
            yield follow("describe", None, QUOTED, {"sentence": topic.sentence})

    def _with_box_answer(self, topic: Topic, move: Move, placed: bool, slots: dict) -> Move:
        """Return a move whose answer gives boxes, and the place unless it was mentioned."""
        answer = self.words.answer("box" if topic.place and not placed else "box_only", None, self.rng, slots)
        boxed_answer = (lambda: use_plural_pronouns(answer())) if topic.is_plural else answer
        return move._replace(offer=move.offer._replace(answer=boxed_answer))

    def _is_one_sided(self, at: int, topic: Topic) -> bool:
        """True if a finding is on one side only and the other side may be asked about."""
        sided = bool(topic.statement.lesion) or topic.statement.entity in SIDED_FINDINGS
        return sided and len(topic.sides) == 1 and self.is_unique[at]

    # ---- what is denied, organs, devices, the view, terms --------------------------------------------------------
    def _denials(self, state: DialogueState) -> Iterator[Move]:
        open_denials = [denial for denial in self.denials if denial.mentions[0] not in state.mentioned]
        self.rng.shuffle(open_denials)
        for denial in open_denials[:2]:
            yield self._subject_move(denial)
        if len(open_denials) > 2:
            first, _, third = open_denials[:3]
            turn = self._make_offer(
                "neither", None, {"finding": first.slots["finding"], "other": third.slots["finding"]}
            )
            yield Move(turn, 1.4, first.mentions + third.mentions, None, denies=True, facts=first.facts + third.facts)

    def _subject_move(self, subject: "_Subject") -> Move:
        turn = self._make_offer(subject.act, subject.case, subject.slots)
        return Move(turn, subject.weight, subject.mentions, None, denies=subject.denies, facts=subject.facts)

    def _terms(self, state: DialogueState) -> Iterator[Move]:
        if ("term", MENTIONED) in state.mentioned:
            return
        for term, definition in self.words.terms_in(turn.answer for turn in state.turns[-2:]):
            turn = self._make_offer("term", None, {"term": f"“{term}”", "definition": definition})
            weight = {"clinician": 0.15, "student": 1.0, "terse": 0.4}[self.register]
            yield Move(turn, weight, (("term", term), ("term", MENTIONED)), state.topic, refers=True)

    def _anything_else(self, state: DialogueState) -> Iterator[Move]:
        if len(state.turns) < 2 or ("else", MENTIONED) in state.mentioned:
            return
        topics = self.subjects.topics
        topic_numbers = [at for at in range(len(topics)) if (at, MENTIONED) not in state.mentioned][:MAX_LISTED]
        if topic_numbers:
            texts, mentions = self._describe_topics(topic_numbers, full=0.6)
            turn = self._offer_findings(topic_numbers, "else", "more", texts)
            topic, facts = topic_numbers[0] if len(topic_numbers) == 1 else None, self._facts_of(topic_numbers)
            yield Move(turn, 1.5, (*mentions, ("else", MENTIONED)), topic, refers=True, facts=facts)
            return
        has_open_device = self.subjects.devices and ("devices", MENTIONED) not in state.mentioned
        if len(state.turns) >= 4 and not self.subjects.has_unnamed and not has_open_device:
            yield Move(self._make_offer("else", "nothing", {}), 0.8, (("else", MENTIONED),), None, refers=True)

    def _summary(self, state: DialogueState) -> Iterator[Move]:
        topics = self.subjects.topics
        topic_numbers = [at for at in range(len(topics)) if (at, MENTIONED) in state.mentioned][:MAX_LISTED]
        if len(topic_numbers) > 1:
            texts = [topics[at].describe(place=False) for at in topic_numbers]
            offer = self._make_offer("summary", "found", {"list": join_in_words(texts)})
            yield Move(offer, 2.5, (), None, refers=True, facts=self._facts_of(topic_numbers))

    # ---- words ----------------------------------------------------------------------------------------------------
    def _facts_of(self, topic_numbers: list[int]) -> tuple[str, ...]:
        return tuple(fact_id for number in topic_numbers for fact_id in self.subjects.topics[number].facts)

    def _describe_topics(self, topic_numbers: list[int], full: float) -> tuple[list[str], tuple]:
        """Return the descriptions of topics, long or short, and the aspects that they mention."""
        texts, mentions = [], []
        for number in topic_numbers:
            topic = self.subjects.topics[number]
            long, cause = self.rng.random() < full, self.rng.random() < 0.5 and len(topic_numbers) == 1
            texts.append(topic.describe(size=long, place=long, cause=cause))
            mentions += _mentioned_aspects(number, long, cause and bool(topic.cause))
        return texts, tuple(mentions)

    def _offer_findings(self, topic_numbers: list[int], act: str, case: str, texts: list[str]) -> Offer:
        """Return an offer that lists findings; one by one if any of them has a place."""
        placed = any(self.subjects.topics[number].has_place for number in topic_numbers)
        parts = [texts[:1], *([text] for text in texts[1:])] if placed else [texts]
        first = self._make_offer(act, case, {"list": join_in_words(parts[0])})
        further_answers = [self.words.answer("also", None, self.rng, {"np": text}) for (text,) in parts[1:]]
        plural_texts = [
            text for number, text in zip(topic_numbers, texts, strict=True) if self.subjects.topics[number].is_plural
        ]

        def answer() -> str:
            full_answer = " ".join((first.answer(), *(further_answer() for further_answer in further_answers)))
            for text in plural_texts:
                full_answer = agree_with_plural(full_answer, text)
            return full_answer

        return first._replace(answer=answer)

    def _make_offer(self, act: str, case, slots: dict, question_act: str = "", topic: Topic | None = None) -> Offer:
        question, wording = self.words.question(question_act or act, self.register, self.rng, slots)
        if act == BOX:  # the caller draws the answer
            answer: Callable[[], str] = str
        else:
            answer = self.words.answer(*((case, None) if act == SIDE else (act, case)), self.rng, slots)
        if topic is not None and topic.is_plural:
            base_question, finding = question, slots["the_finding"]
            question = lambda: capitalize(agree_with_plural(base_question(), finding))  # noqa: E731
            if act != "describe":
                base_answer, noun = answer, slots.get("np", topic.noun)
                answer = lambda: use_plural_pronouns(agree_with_plural(base_answer(), noun))  # noqa: E731
        return Offer(question, answer, question_act or act, wording)


def _mentioned_aspects(at: int, full: bool, cause: bool) -> tuple[tuple[int, str], ...]:
    return tuple((at, aspect) for aspect in (MENTIONED, *((PLACE, SIZE) if full else ()), *((CAUSE,) if cause else ())))


class _Subject(NamedTuple):
    """A subject that may be asked about at any time: act, case and slots of its wording, and fields of its move."""

    act: str
    case: str | None
    slots: dict[str, str]
    weight: float
    mentions: tuple[tuple[str, str], ...]
    denies: bool = False
    facts: tuple[str, ...] = ()


def _general_subjects(subjects: Subjects, facts: ImageFacts) -> Iterator[_Subject]:
    """Yield the heart, the organs, the devices and the view."""
    if subjects.heart:
        mentions = (("heart", MENTIONED), (ENLARGED_HEART, MENTIONED))
        yield _Subject("heart", subjects.heart, {}, 1.0, mentions, facts=subjects.heart_facts)
    for organ, (text, ids) in subjects.organs.items():
        yield _Subject("organ", None, {"organ": organ, "sentence": text}, 0.9, ((organ, MENTIONED),), facts=ids)
    device_label, device_tells = load_label_names().device, (("devices", MENTIONED),)
    if subjects.devices:
        text = " ".join(sentence for sentence, _ in subjects.devices[:2])
        slots = {"sentence": text, "sentence_low": lower_first(text)}
        ids = tuple(fact_id for _, sentence_ids in subjects.devices for fact_id in sentence_ids)
        yield _Subject("devices", "some", slots, 1.2, device_tells, facts=ids)
    elif device_label in facts.absent:
        ids = (facts.ids[device_label],) if device_label in facts.ids else ()
        yield _Subject("devices", "none", {}, 0.6, device_tells, denies=True, facts=ids)
    if facts.view in ("PA", "AP"):
        slots = {"view": facts.view, "a_view": f"{'an' if facts.view == 'AP' else 'a'} {facts.view}"}
        yield _Subject("view", None, slots, 0.35, (("view", MENTIONED),))

"""What can be asked next in a conversation of the engine rules: moves, each a question with its answer.

A move is offered only if the facts bear its answer out and nothing has told it yet. It says what it tells. Its
wordings are drawn when it is offered, and filled in when it is taken: of some five offers one is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cxr.radvlm.conversations.engine import Asked
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.record import Turn
from cxr.radvlm.conversations.topics import HEART, Denial, Subjects, Topic, listed, lowered, with_article
from cxr.radvlm.conversations.wordings import Wordings, agreed, capital, they
from cxr.radvlm.labels import names
from cxr.radvlm.samples import slot

PLACE, SIZE, CAUSE, SURE, SIDE, BOX, MASK, SAID, TOLD = (
    "place", "size", "cause", "sure", "side", "box", "mask", "said", "told",
)  # fmt: skip
SIDED = ("pneumothorax", "pleural thickening", "scar", "nodule", "granuloma", "hydropneumothorax")
"""Findings whose other side is asked for, besides those of the lungs and the pleura among the seven."""
SEVERAL = 3
"""Findings that an answer lists at most."""


class Offer(NamedTuple):
    """A question, and the answer that it gets if it is asked; act and wording as those of a :class:`Turn`."""

    question: Callable[[], str]
    answer: Callable[[], str]
    act: str
    wording: str

    def taken(self) -> Turn:
        """Return the turn."""
        return Turn(self.question(), self.answer(), self.act, self.wording)


class Move(NamedTuple):
    """A question and its answer that may come next.

    weight: how likely it is drawn; tells: (topic or subject, aspect) that it tells; topic: what is spoken of from then
    on; refers: it refers to an earlier answer; denies: its answer denies; boxes: {name of a slot: its topic}.
    """

    offer: Offer
    weight: float
    tells: tuple[tuple[object, str], ...] = ()
    topic: int | None = None
    refers: bool = False
    denies: bool = False
    box: int | None = None
    mask: int | None = None
    facts: tuple[str, ...] = ()


@dataclass
class State:
    """What has been said: told (topic or subject, aspect), the topic last spoken of, and the turns."""

    told: set = field(default_factory=set)
    topic: int | None = None
    turns: list[Turn] = field(default_factory=list)
    _wordings: set[str] = field(default_factory=set)

    def add(self, move: Move) -> None:
        self.turns.append(move.offer.taken())
        self.told.update(move.tells)
        self._wordings.add(move.offer.wording)
        self.topic = move.topic

    def asked(self, offer: Offer) -> bool:
        """Tell whether a question was asked before, in the same wording."""
        return offer.wording in self._wordings and offer.question() in (turn.question for turn in self.turns)


class Moves:
    """Offers moves about one image, in the voice of one register."""

    def __init__(self, request: Asked, subjects: Subjects, words: Wordings, register: str, rng: Random, segments: bool):
        """``segments``: masks are asked for."""
        self.facts, self.grounded = request.facts, request.grounded
        self.subjects, self.words, self.register, self.rng, self.segments = subjects, words, register, rng, segments
        nouns = [topic.noun for topic in subjects.topics]
        self.alone = [nouns.count(noun) == 1 for noun in nouns]
        self.denials = list(map(_denied, subjects.denials))
        self.others = list(_others(subjects, request.facts))
        self.named = [self._named(*numbered_topic) for numbered_topic in enumerate(subjects.topics)]

    def opening(self) -> Move:
        """Return the first move: a general question, and the main findings or that there are none."""
        topics = self.subjects.topics
        if not topics:
            return self._nothing_found()
        topic_numbers = list(range(min(len(topics), self.rng.choice((1, 2, 2, 3)))))
        case = "found" if len(topic_numbers) == 1 else "several"
        texts, tells = self._list(topic_numbers, full=0.4)
        turn = self._offer_findings(topic_numbers, "overview", case, texts)
        facts = tuple(fact_id for at in topic_numbers for fact_id in topics[at].facts)
        return Move(turn, 1.0, tells, topic_numbers[-1] if len(topic_numbers) == 1 else None, facts=facts)

    def _nothing_found(self) -> Move:
        organ, (text, facts) = next(iter(self._normal().items()), ("", ("", ())))
        absent = names().no_finding in self.facts.present and not self.subjects.untold
        case = "nothing" if absent else "quiet"
        if not text:
            return self._quiet(case)
        slots = {"sentence": text, "sentence_low": lowered(text)}
        return Move(self._turn("overview", case, slots), 1.0, ((organ, TOLD),), facts=facts)

    def _quiet(self, case: str) -> Move:
        """Return an opening by the first sentence that affirms nothing; what it denies is told."""
        affirmed = {fact for topic in self.subjects.topics for fact in topic.facts}
        text_by_id = {f"{self.facts.study_id}#{number}": text for number, text in self.facts.sentences.items()}
        neutral_text_by_id = {name: text for name, text in text_by_id.items() if name not in affirmed}
        name, text = next(iter(neutral_text_by_id.items()), ("", ""))
        tells = tuple((denial.noun, TOLD) for denial in self.subjects.denials if name in denial.facts)
        if name in self.subjects.heart_facts:
            tells = (*tells, ("heart", TOLD), (HEART, TOLD))
        turn = self._turn("overview", case, {"sentence": text, "sentence_low": lowered(text)})
        return Move(
            turn,
            1.0,
            tells,
            denies=any(name in denial.facts for denial in self.subjects.denials),
            facts=(name,) if name else (),
        )

    def _normal(self) -> dict:
        order = sorted(self.subjects.organs.items(), key=lambda item: item[0] != "lungs")
        return dict(order)

    def offered(self, state: State, last: bool) -> Iterator[Move]:
        """Yield the moves that can come next; the ``last`` may sum up."""
        if last and len(self.subjects.topics) > 1:
            yield from self._summary(state)
        for at, topic in enumerate(self.subjects.topics):
            if (at, TOLD) in state.told:
                yield from self._follow_ups(at, topic, state)
            else:
                yield self._present(at, topic)
        if state.turns:
            yield from self._denials(state)
            yield from self._subjects(state)
            yield from self._terms(state)
            yield from self._rest(state)

    # ---- findings -------------------------------------------------------------------------------------------------
    def _present(self, at: int, topic: Topic) -> Move:
        full = self.rng.random() < 0.4
        slots = self.named[at] | {"np": topic.called(size=full, place=full, sure=True)}
        turn = self._turn("present", topic.hedge, slots, topic=topic)
        return Move(turn, 1.2, self._tells(at, topic, full, False), at, facts=topic.facts)

    def _tells(self, at: int, topic: Topic, full: bool, cause: bool) -> tuple:
        tells = [TOLD] + ([PLACE, SIZE] if full else []) + ([CAUSE] if cause else [])
        return tuple((at, aspect) for aspect in tells)

    def _named(self, at: int, topic: Topic) -> dict[str, str]:
        the = topic.called(size=False, place=not self.alone[at], article="the")
        the = the.replace("the probable ", "the ").replace("the possible ", "the ")
        single = self.words.nouns[topic.one.entity].one
        return {"finding": single, "a_finding": single if topic.mass else with_article(single), "the_finding": the}

    def _follow_ups(self, at: int, topic: Topic, state: State) -> Iterator[Move]:
        last, covered_aspects = state.topic == at, {aspect for subject, aspect in state.told if subject == at}
        weight = 3.0 if last else 0.7

        def follow(act: str, case, aspect: str, slots: dict, weight: float = weight, **move_fields) -> Move:
            pronoun_act = f"{act}_it"
            pronoun = last and not topic.many and pronoun_act in self.words.questions and self.rng.random() < 0.7
            turn = self._turn(act, case, self.named[at] | slots, pronoun_act if pronoun else act, topic)
            tells = ((at, aspect), (at, PLACE)) if aspect == BOX else ((at, aspect),)
            return Move(turn, weight, tells, at, refers=pronoun or act == "side", facts=topic.facts, **move_fields)

        if self.grounded and topic.boxes:
            if BOX not in covered_aspects:
                slots = {"place": topic.place, "box": slot(self._slot_name(at, topic))}
                yield self._boxed(topic, follow("box", None, BOX, slots, 4.0, box=at), PLACE in covered_aspects, slots)
        elif topic.place and PLACE not in covered_aspects:
            yield follow("where", None, PLACE, {"place": topic.place})
        if topic.size and SIZE not in covered_aspects:
            yield follow("size", None, SIZE, {"size": topic.size})
        if (topic.hedge or self.rng.random() < 0.35) and SURE not in covered_aspects:
            yield follow("sure", topic.hedge, SURE, {}, weight * (1.0 if topic.hedge else 0.4))
        if topic.cause and CAUSE not in covered_aspects:
            yield follow("cause", topic.cause_hedge, CAUSE, {"cause": topic.cause})
        if last and PLACE in covered_aspects and SIDE not in covered_aspects and self._one_sided(at, topic):
            (side,) = topic.sides
            yield follow("side", "one_side", SIDE, {"side": side, "other_side": "left" if side == "right" else "right"})
        if topic.mask_id and self.segments and MASK not in covered_aspects:
            yield follow(
                "segment", None, MASK, {"the_np": topic.called(size=False, article="the")}, weight * 0.6, mask=at
            )
        if covered_aspects == {TOLD} and len(topic.said.split()) > 5:
            yield follow("describe", None, SAID, {"sentence": topic.said})

    def _slot_name(self, at: int, topic: Topic) -> str:
        return topic.noun if self.alone[at] else f"{topic.noun} {at + 1}"

    def _boxed(self, topic: Topic, move: Move, placed: bool, slots: dict) -> Move:
        """Return a move with an answer that gives boxes, and the place unless it is known or was told."""
        answer = self.words.answer("box" if topic.place and not placed else "box_only", None, self.rng, slots)
        boxed_answer = (lambda: they(answer())) if topic.many else answer
        return move._replace(offer=move.offer._replace(answer=boxed_answer))

    def _one_sided(self, at: int, topic: Topic) -> bool:
        """Tell whether a finding lies on one side and may be asked for on the other."""
        sided = bool(topic.one.lesion) or topic.one.entity in SIDED
        return sided and len(topic.sides) == 1 and self.alone[at]

    # ---- what is denied, organs, devices, the view, terms --------------------------------------------------------
    def _denials(self, state: State) -> Iterator[Move]:
        open_denials = [denial for denial in self.denials if denial.tells[0] not in state.told]
        self.rng.shuffle(open_denials)
        for denial in open_denials[:2]:
            yield self._question_move(denial)
        if len(open_denials) > 2:
            yield self._neither(open_denials[0], open_denials[2])

    def _neither(self, first: "_Subject", second: "_Subject") -> Move:
        turn = self._turn("neither", None, {"finding": first.slots["finding"], "other": second.slots["finding"]})
        return Move(turn, 1.4, first.tells + second.tells, None, denies=True, facts=first.facts + second.facts)

    def _subjects(self, state: State) -> Iterator[Move]:
        for subject in self.others:
            if state.told.isdisjoint(subject.tells):
                yield self._question_move(subject)

    def _question_move(self, subject: "_Subject") -> Move:
        turn = self._turn(subject.act, subject.case, subject.slots)
        return Move(turn, subject.weight, subject.tells, None, denies=subject.denies, facts=subject.facts)

    def _terms(self, state: State) -> Iterator[Move]:
        if ("term", TOLD) in state.told:
            return
        for term, definition in self.words.terms_in(turn.answer for turn in state.turns[-2:]):
            turn = self._turn("term", None, {"term": f"“{term}”", "definition": definition})
            weight = {"clinician": 0.15, "student": 1.0, "terse": 0.4}[self.register]
            yield Move(turn, weight, (("term", term), ("term", TOLD)), state.topic, refers=True)

    def _rest(self, state: State) -> Iterator[Move]:
        if len(state.turns) < 2 or ("else", TOLD) in state.told:
            return
        topics = self.subjects.topics
        topic_numbers = [at for at in range(len(topics)) if (at, TOLD) not in state.told][:SEVERAL]
        if topic_numbers:
            texts, tells = self._list(topic_numbers, full=0.6)
            facts = tuple(fact_id for at in topic_numbers for fact_id in topics[at].facts)
            turn = self._offer_findings(topic_numbers, "else", "more", texts)
            topic = topic_numbers[0] if len(topic_numbers) == 1 else None
            yield Move(turn, 1.5, (*tells, ("else", TOLD)), topic, refers=True, facts=facts)
        elif len(state.turns) >= 4 and not self.subjects.untold and self._devices_told(state):
            yield Move(self._turn("else", "nothing", {}), 0.8, (("else", TOLD),), None, refers=True)

    def _devices_told(self, state: State) -> bool:
        return not self.subjects.devices or ("devices", TOLD) in state.told

    def _summary(self, state: State) -> Iterator[Move]:
        topics = self.subjects.topics
        topic_numbers = [at for at in range(len(topics)) if (at, TOLD) in state.told][:SEVERAL]
        if len(topic_numbers) > 1:
            texts = [topics[at].called(place=False) for at in topic_numbers]
            facts = tuple(fact_id for at in topic_numbers for fact_id in topics[at].facts)
            yield Move(self._turn("summary", "found", {"list": listed(texts)}), 2.5, (), None, refers=True, facts=facts)

    # ---- words ----------------------------------------------------------------------------------------------------
    def _list(self, topic_numbers: list[int], full: float) -> tuple[list[str], tuple]:
        """Return how topics are called in a list, in full or in short, and what that tells."""
        texts, tells = [], []
        for number in topic_numbers:
            topic = self.subjects.topics[number]
            long, cause = self.rng.random() < full, self.rng.random() < 0.5 and len(topic_numbers) == 1
            texts.append(topic.called(size=long, place=long, cause=cause))
            tells += self._tells(number, topic, long, cause and bool(topic.cause))
        return texts, tuple(tells)

    def _offer_findings(self, topic_numbers: list[int], act: str, case: str, texts: list[str]) -> Offer:
        """Return the offer that tells findings: in one list, or one by one where one of them has a place."""
        placed = any(self.subjects.topics[number].placed for number in topic_numbers)
        parts = [texts[:1], *([text] for text in texts[1:])] if placed else [texts]
        first = self._turn(act, case, {"list": listed(parts[0])})
        further_answers = [self.words.answer("also", None, self.rng, {"np": text}) for (text,) in parts[1:]]
        plural_texts = [
            text for number, text in zip(topic_numbers, texts, strict=True) if self.subjects.topics[number].many
        ]

        def answer() -> str:
            full_answer = " ".join((first.answer(), *(further_answer() for further_answer in further_answers)))
            for text in plural_texts:
                full_answer = agreed(full_answer, text)
            return full_answer

        return first._replace(answer=answer)

    def _turn(self, act: str, case, slots: dict, question_act: str = "", topic: Topic | None = None) -> Offer:
        question, wording = self.words.question(question_act or act, self.register, self.rng, slots)
        answer = self._answer(act, case, slots)
        if topic is not None and topic.many:
            base_question, finding = question, slots["the_finding"]
            question = lambda: capital(agreed(base_question(), finding))  # noqa: E731
            if act != "describe":
                base_answer, noun = answer, slots.get("np", topic.noun)
                answer = lambda: they(agreed(base_answer(), noun))  # noqa: E731
        return Offer(question, answer, question_act or act, wording)

    def _answer(self, act: str, case, slots: dict) -> Callable[[], str]:
        if act == BOX:  # drawn by its caller
            return str
        return self.words.answer(*((case, None) if act == SIDE else (act, case)), self.rng, slots)


class _Subject(NamedTuple):
    """What can be asked whatever was said before: act, case and slots of its words, and the rest of its move."""

    act: str
    case: str | None
    slots: dict[str, str]
    weight: float
    tells: tuple[tuple[str, str], ...]
    denies: bool = False
    facts: tuple[str, ...] = ()


def _denied(denial: Denial) -> _Subject:
    slots = {"finding": denial.noun, "a_finding": denial.noun if denial.mass else with_article(denial.noun)}
    return _Subject("absent", None, slots, 1.4, ((denial.noun, TOLD),), True, denial.facts)


def _others(subjects: Subjects, facts: ImageFacts) -> Iterator[_Subject]:
    """Yield the heart, the organs, the devices and the view."""
    if subjects.heart:
        yield _Subject("heart", subjects.heart, {}, 1.0, (("heart", TOLD), (HEART, TOLD)), facts=subjects.heart_facts)
    for organ, (text, ids) in subjects.organs.items():
        yield _Subject("organ", None, {"organ": organ, "sentence": text}, 0.9, ((organ, TOLD),), facts=ids)
    device_label, device_tells = names().device, (("devices", TOLD),)
    if subjects.devices:
        text = " ".join(sentence for sentence, _ in subjects.devices[:2])
        slots = {"sentence": text, "sentence_low": lowered(text)}
        yield _Subject(
            "devices",
            "some",
            slots,
            1.2,
            device_tells,
            facts=tuple(fact_id for _, ids in subjects.devices for fact_id in ids),
        )
    elif device_label in facts.absent:
        ids = (facts.ids[device_label],) if device_label in facts.ids else ()
        yield _Subject("devices", "none", {}, 0.6, device_tells, denies=True, facts=ids)
    if facts.view in ("PA", "AP"):
        slots = {"view": facts.view, "a_view": f"{'an' if facts.view == 'AP' else 'a'} {facts.view}"}
        yield _Subject("view", None, slots, 0.35, (("view", TOLD),))

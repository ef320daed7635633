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

    def __init__(self, asked: Asked, subjects: Subjects, words: Wordings, register: str, rng: Random, segments: bool):
        """``segments``: masks are asked for."""
        self.facts, self.grounded = asked.facts, asked.grounded
        self.subjects, self.words, self.register, self.rng, self.segments = subjects, words, register, rng, segments
        nouns = [topic.noun for topic in subjects.topics]
        self.alone = [nouns.count(noun) == 1 for noun in nouns]
        self.denials = list(map(_denied, subjects.denials))
        self.others = list(_others(subjects, asked.facts))
        self.named = [self._named(*each) for each in enumerate(subjects.topics)]

    def opening(self) -> Move:
        """Return the first move: a general question, and the main findings or that there are none."""
        topics = self.subjects.topics
        if not topics:
            return self._nothing_found()
        shown = list(range(min(len(topics), self.rng.choice((1, 2, 2, 3)))))
        case = "found" if len(shown) == 1 else "several"
        texts, tells = self._list(shown, full=0.4)
        turn = self._told(shown, "overview", case, texts)
        facts = tuple(one for at in shown for one in topics[at].facts)
        return Move(turn, 1.0, tells, shown[-1] if len(shown) == 1 else None, facts=facts)

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
        ids = {f"{self.facts.study_id}#{number}": text for number, text in self.facts.sentences.items()}
        left = {name: text for name, text in ids.items() if name not in affirmed}
        name, text = next(iter(left.items()), ("", ""))
        tells = tuple((one.noun, TOLD) for one in self.subjects.denials if name in one.facts)
        if name in self.subjects.heart_facts:
            tells = (*tells, ("heart", TOLD), (HEART, TOLD))
        turn = self._turn("overview", case, {"sentence": text, "sentence_low": lowered(text)})
        return Move(
            turn,
            1.0,
            tells,
            denies=any(name in one.facts for one in self.subjects.denials),
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
        last, told = state.topic == at, {aspect for where, aspect in state.told if where == at}
        weight = 3.0 if last else 0.7

        def follow(act: str, case, aspect: str, slots: dict, weight: float = weight, **more) -> Move:
            it = f"{act}_it"
            pronoun = last and not topic.many and it in self.words.questions and self.rng.random() < 0.7
            turn = self._turn(act, case, self.named[at] | slots, it if pronoun else act, topic)
            tells = ((at, aspect), (at, PLACE)) if aspect == BOX else ((at, aspect),)
            return Move(turn, weight, tells, at, refers=pronoun or act == "side", facts=topic.facts, **more)

        if self.grounded and topic.boxes:
            if BOX not in told:
                slots = {"place": topic.place, "box": slot(self._slot_name(at, topic))}
                yield self._boxed(topic, follow("box", None, BOX, slots, 4.0, box=at), PLACE in told, slots)
        elif topic.place and PLACE not in told:
            yield follow("where", None, PLACE, {"place": topic.place})
        if topic.size and SIZE not in told:
            yield follow("size", None, SIZE, {"size": topic.size})
        if (topic.hedge or self.rng.random() < 0.35) and SURE not in told:
            yield follow("sure", topic.hedge, SURE, {}, weight * (1.0 if topic.hedge else 0.4))
        if topic.cause and CAUSE not in told:
            yield follow("cause", topic.cause_hedge, CAUSE, {"cause": topic.cause})
        if last and PLACE in told and SIDE not in told and self._one_sided(at, topic):
            (side,) = topic.sides
            yield follow("side", "one_side", SIDE, {"side": side, "other_side": "left" if side == "right" else "right"})
        if topic.mask_id and self.segments and MASK not in told:
            yield follow(
                "segment", None, MASK, {"the_np": topic.called(size=False, article="the")}, weight * 0.6, mask=at
            )
        if told == {TOLD} and len(topic.said.split()) > 5:
            yield follow("describe", None, SAID, {"sentence": topic.said})

    def _slot_name(self, at: int, topic: Topic) -> str:
        return topic.noun if self.alone[at] else f"{topic.noun} {at + 1}"

    def _boxed(self, topic: Topic, move: Move, placed: bool, slots: dict) -> Move:
        """Return a move with an answer that gives boxes, and the place unless it is known or was told."""
        answer = self.words.answer("box" if topic.place and not placed else "box_only", None, self.rng, slots)
        told = (lambda: they(answer())) if topic.many else answer
        return move._replace(offer=move.offer._replace(answer=told))

    def _one_sided(self, at: int, topic: Topic) -> bool:
        """Tell whether a finding lies on one side and may be asked for on the other."""
        sided = bool(topic.one.lesion) or topic.one.entity in SIDED
        return sided and len(topic.sides) == 1 and self.alone[at]

    # ---- what is denied, organs, devices, the view, terms --------------------------------------------------------
    def _denials(self, state: State) -> Iterator[Move]:
        left = [one for one in self.denials if one.tells[0] not in state.told]
        self.rng.shuffle(left)
        for one in left[:2]:
            yield self._asked(one)
        if len(left) > 2:
            yield self._neither(left[0], left[2])

    def _neither(self, one: "_Subject", other: "_Subject") -> Move:
        turn = self._turn("neither", None, {"finding": one.slots["finding"], "other": other.slots["finding"]})
        return Move(turn, 1.4, one.tells + other.tells, None, denies=True, facts=one.facts + other.facts)

    def _subjects(self, state: State) -> Iterator[Move]:
        for one in self.others:
            if state.told.isdisjoint(one.tells):
                yield self._asked(one)

    def _asked(self, one: "_Subject") -> Move:
        turn = self._turn(one.act, one.case, one.slots)
        return Move(turn, one.weight, one.tells, None, denies=one.denies, facts=one.facts)

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
        left = [at for at in range(len(topics)) if (at, TOLD) not in state.told][:SEVERAL]
        if left:
            texts, tells = self._list(left, full=0.6)
            facts = tuple(one for at in left for one in topics[at].facts)
            turn = self._told(left, "else", "more", texts)
            topic = left[0] if len(left) == 1 else None
            yield Move(turn, 1.5, (*tells, ("else", TOLD)), topic, refers=True, facts=facts)
        elif len(state.turns) >= 4 and not self.subjects.untold and self._devices_told(state):
            yield Move(self._turn("else", "nothing", {}), 0.8, (("else", TOLD),), None, refers=True)

    def _devices_told(self, state: State) -> bool:
        return not self.subjects.devices or ("devices", TOLD) in state.told

    def _summary(self, state: State) -> Iterator[Move]:
        topics = self.subjects.topics
        told = [at for at in range(len(topics)) if (at, TOLD) in state.told][:SEVERAL]
        if len(told) > 1:
            texts = [topics[at].called(place=False) for at in told]
            facts = tuple(one for at in told for one in topics[at].facts)
            yield Move(self._turn("summary", "found", {"list": listed(texts)}), 2.5, (), None, refers=True, facts=facts)

    # ---- words ----------------------------------------------------------------------------------------------------
    def _list(self, at: list[int], full: float) -> tuple[list[str], tuple]:
        """Return how topics are called in a list, in full or in short, and what that tells."""
        texts, tells = [], []
        for number in at:
            topic = self.subjects.topics[number]
            long, cause = self.rng.random() < full, self.rng.random() < 0.5 and len(at) == 1
            texts.append(topic.called(size=long, place=long, cause=cause))
            tells += self._tells(number, topic, long, cause and bool(topic.cause))
        return texts, tuple(tells)

    def _told(self, at: list[int], act: str, case: str, texts: list[str]) -> Offer:
        """Return the offer that tells findings: in one list, or one by one where one of them has a place."""
        placed = any(self.subjects.topics[number].placed for number in at)
        parts = [texts[:1], *([text] for text in texts[1:])] if placed else [texts]
        first = self._turn(act, case, {"list": listed(parts[0])})
        more = [self.words.answer("also", None, self.rng, {"np": text}) for (text,) in parts[1:]]
        many = [text for number, text in zip(at, texts, strict=True) if self.subjects.topics[number].many]

        def answer() -> str:
            told = " ".join((first.answer(), *(one() for one in more)))
            for text in many:
                told = agreed(told, text)
            return told

        return first._replace(answer=answer)

    def _turn(self, act: str, case, slots: dict, asked: str = "", topic: Topic | None = None) -> Offer:
        question, wording = self.words.question(asked or act, self.register, self.rng, slots)
        told = self._answer(act, case, slots)
        if topic is not None and topic.many:
            put, finding = question, slots["the_finding"]
            question = lambda: capital(agreed(put(), finding))  # noqa: E731
            if act != "describe":
                spoken, noun = told, slots.get("np", topic.noun)
                told = lambda: they(agreed(spoken(), noun))  # noqa: E731
        return Offer(question, told, asked or act, wording)

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


def _denied(one: Denial) -> _Subject:
    slots = {"finding": one.noun, "a_finding": one.noun if one.mass else with_article(one.noun)}
    return _Subject("absent", None, slots, 1.4, ((one.noun, TOLD),), True, one.facts)


def _others(subjects: Subjects, facts: ImageFacts) -> Iterator[_Subject]:
    """Yield the heart, the organs, the devices and the view."""
    if subjects.heart:
        yield _Subject("heart", subjects.heart, {}, 1.0, (("heart", TOLD), (HEART, TOLD)), facts=subjects.heart_facts)
    for organ, (text, ids) in subjects.organs.items():
        yield _Subject("organ", None, {"organ": organ, "sentence": text}, 0.9, ((organ, TOLD),), facts=ids)
    devices, told = names().device, (("devices", TOLD),)
    if subjects.devices:
        text = " ".join(one for one, _ in subjects.devices[:2])
        slots = {"sentence": text, "sentence_low": lowered(text)}
        yield _Subject(
            "devices", "some", slots, 1.2, told, facts=tuple(one for _, ids in subjects.devices for one in ids)
        )
    elif devices in facts.absent:
        ids = (facts.ids[devices],) if devices in facts.ids else ()
        yield _Subject("devices", "none", {}, 0.6, told, denies=True, facts=ids)
    if facts.view in ("PA", "AP"):
        slots = {"view": facts.view, "a_view": f"{'an' if facts.view == 'AP' else 'a'} {facts.view}"}
        yield _Subject("view", None, slots, 0.35, (("view", TOLD),))

"""Moves of the engine ``rules``: questions with their answers that may come next in a conversation.

Templates are drawn when a move is proposed. They are filled in only if the move is chosen: four of five moves are not.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from typing import NamedTuple

from cxr.radvlm.conversations.engine import Request, Turn
from cxr.radvlm.conversations.topics import ENLARGED_HEART, Subjects, Topic, lower_first, with_article
from cxr.radvlm.conversations.wordings import Wordings, agree_with_plural, capitalize, use_plural_pronouns
from cxr.radvlm.labels import load_label_names
from cxr.radvlm.samples import box_slot, join_in_words

PLACE, SIZE, CAUSE, SURE, SIDE, BOX, MASK, QUOTED, MENTIONED = (
    "place", "size", "cause", "sure", "side", "box", "mask", "quoted", "mentioned",
)  # fmt: skip
PRESENCE = "presence"  # act of questions about findings, whether the answer affirms or denies them
SIDED_FINDINGS = ("pneumothorax", "pleural thickening", "scar", "nodule", "granuloma", "hydropneumothorax")
"""Findings, besides the lesion types, for which a question may ask about the other side."""
OPENING_PRESENCE = 0.5
"""Probability of beginning with a question of presence ("Is there …?"). Otherwise an overview names the findings."""
MAX_LISTED = 3  # maximum number of findings that an answer lists
_OF_THE_REST = re.compile(r"\b(?:remain\w*|rest|otherwise|other)\b", re.IGNORECASE)
"""Words by which a sentence about an organ refers to an earlier one. Such a sentence cannot begin a conversation."""
HEART_MENTIONS = (("heart", MENTIONED), (ENLARGED_HEART, MENTIONED))


class Move(NamedTuple):
    """A question with its answer that may come next in a conversation. The texts are not filled in yet."""

    question: Callable[[], str]  # function that fills in the question
    answer: Callable[[], str]  # function that fills in the answer
    act: str  # as in Turn
    wording: str  # as in Turn
    weight: float = 1.0  # relative probability of being drawn
    mentions: tuple[tuple[object, str], ...] = ()  # (topic number or subject, aspect) pairs that it covers
    topic: int | None = None  # number of the topic under discussion after it
    refers: bool = False  # whether it refers to an earlier answer
    denies: bool = False  # whether its answer denies a finding
    box: int | None = None  # number of the topic whose boxes it gives
    mask: int | None = None  # number of the topic whose mask it gives
    facts: tuple[str, ...] = ()  # ids of the facts that it uses
    presence_of: str = ""  # name of the finding whose presence it asks


class PresenceBalance:
    """Keeps the answers yes and no to questions of presence equally frequent, for each finding in each split. Otherwise
    the name of a finding would tell the answer without the image. One instance serves all conversations."""

    def __init__(self) -> None:
        self._excess_of_yes: Counter[tuple[str, str]] = Counter()

    def is_offered(self, split: str, finding: str, is_there: bool) -> bool:
        """Return whether the answer about a finding (yes if ``is_there``) was given no more often than its opposite."""
        excess = self._excess_of_yes[split, finding]
        return excess <= 0 if is_there else excess >= 0

    def count(self, split: str, moves: Iterable["Move"]) -> None:
        """Count the yes and no answers of a finished conversation."""
        for move in moves:
            if move.presence_of:
                self._excess_of_yes[split, move.presence_of] += -1 if move.denies else 1


@dataclass
class DialogueState:
    """The moves and turns of a conversation so far, and what they have covered."""

    moves: list[Move] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    mentioned: set = field(default_factory=set)  # (topic number or subject, aspect) pairs that it has covered

    def add(self, move: Move) -> None:
        self.moves.append(move)
        self.turns.append(Turn(move.question(), move.answer(), move.act, move.wording))
        self.mentioned.update(move.mentions)

    def was_asked(self, move: Move) -> bool:
        """Return whether the same question was asked before in the same wording."""
        same_wording = [turn for turn in self.turns if turn.wording == move.wording]
        return bool(same_wording) and move.question() in (turn.question for turn in self.turns)


class MoveGenerator:
    """Proposes moves about one image, in one register (clinician, student or terse)."""

    def __init__(
        self, request: Request, subjects: Subjects, words: Wordings, register: str, rng: Random,
        balance: PresenceBalance,
    ):  # fmt: skip
        self.facts, self.grounded, self.balance = request.facts, request.grounded, balance
        self.subjects, self.words, self.register, self.rng = subjects, words, register, rng
        nouns = [topic.noun for topic in subjects.topics]
        self.is_unique = [nouns.count(noun) == 1 for noun in nouns]
        self.askable_denials = [
            denial
            for denial in subjects.denials
            # do not ask about "a large effusion" if the image may have a small one
            if not denial.statement.limits and balance.is_offered(self.facts.split, denial.noun, False)
        ]
        self.name_slots = [self._fill_names(*numbered_topic) for numbered_topic in enumerate(subjects.topics)]

    def opening(self) -> Move:
        """Return the first move: a question of presence, or a general one. The answer to a general question lists the
        main findings or says that there are none."""
        topics = self.subjects.topics
        presence = [*self._introductions(DialogueState()), *self._denials(DialogueState())]
        if presence and self.rng.random() < OPENING_PRESENCE:
            return self.rng.choice(presence)
        if not topics:
            return self._nothing_found()
        topic_numbers = list(range(min(len(topics), self.rng.choice((1, 2, 2, 3)))))
        return self._list_findings("overview", "found" if len(topic_numbers) == 1 else "several", topic_numbers, 0.4)

    def _nothing_found(self) -> Move:
        """Return the first move of an image without findings. It quotes a sentence, if possible about an organ."""
        subjects = self.subjects
        absent = load_label_names().no_finding in self.facts.present and not subjects.has_unnamed
        case = "nothing" if absent else "quiet"
        organs = {organ: row for organ, row in subjects.organs.items() if not _OF_THE_REST.search(row[0])}
        if organs:
            organ = min(organs, key=lambda organ: organ != "lungs")
            text, facts = organs[organ]
            return self._move("overview", case, _sentence_slots(text), mentions=((organ, MENTIONED),), facts=facts)
        number, text = next(iter(self.facts.sentences.items()), (0, ""))
        facts = (f"{self.facts.study_id}#{number}",) if number else ()
        denials = [denial for denial in subjects.denials if set(facts) & set(denial.facts)]
        mentions = tuple((denial.noun, MENTIONED) for denial in denials)
        mentions += HEART_MENTIONS if set(facts) & set(subjects.heart_facts) else ()
        slots = _sentence_slots(text)
        return self._move("overview", case, slots, mentions=mentions, denies=bool(denials), facts=facts)

    def candidates(self, state: DialogueState, last: bool) -> Iterator[Move]:
        """Yield the moves that may come next. They include a summary only in the ``last`` round."""
        if last and len(self.subjects.topics) > 1:
            yield from self._summary(state)
        for at, topic in enumerate(self.subjects.topics):
            if (at, MENTIONED) in state.mentioned:
                yield from self._follow_ups(at, topic, state)
        yield from self._introductions(state)
        if state.turns:
            yield from self._denials(state)
            yield from self._negatives(state)
            yield from self._general_subjects(state)
            yield from self._terms(state)
            yield from self._anything_else(state)

    def _introductions(self, state: DialogueState) -> Iterator[Move]:
        for at, topic in enumerate(self.subjects.topics):
            name = self.name_slots[at]["finding"]
            if (at, MENTIONED) in state.mentioned or not self.balance.is_offered(self.facts.split, name, True):
                continue
            full = self.rng.random() < 0.4
            slots = self.name_slots[at] | {"np": topic.describe(size=full, place=full, sure=True)}
            mentions = _mentioned_aspects(at, full, False)
            fields = {"question_act": PRESENCE, "about": topic, "topic": at, "facts": topic.facts, "presence_of": name}
            yield self._move("present", topic.hedge, slots, 1.2, mentions, **fields)

    def _fill_names(self, at: int, topic: Topic) -> dict[str, str]:
        the = topic.describe(size=False, place=not self.is_unique[at], article="the")
        the = the.replace("the probable ", "the ").replace("the possible ", "the ")
        single = self.words.nouns[topic.statement.entity].singular
        return {"finding": single, "a_finding": single if topic.is_mass else with_article(single), "the_finding": the}

    def _follow_ups(self, at: int, topic: Topic, state: DialogueState) -> Iterator[Move]:
        last = state.moves[-1].topic == at
        covered_aspects = {aspect for subject, aspect in state.mentioned if subject == at}
        weight = 3.0 if last else 0.7

        def follow(act: str, case, aspect: str, slots: dict, weight: float = weight, **fields) -> Move:
            pronoun_act = f"{act}_it"
            pronoun = last and not topic.is_plural and pronoun_act in self.words.questions and self.rng.random() < 0.7
            fields |= {"topic": at, "refers": pronoun or act == "side", "facts": topic.facts}
            question_act = pronoun_act if pronoun else act
            mentions = ((at, aspect), (at, PLACE)) if aspect == BOX else ((at, aspect),)
            slots = self.name_slots[at] | slots
            return self._move(act, case, slots, weight, mentions, about=topic, question_act=question_act, **fields)

        if self.grounded and topic.boxes:
            if BOX not in covered_aspects:
                name = topic.noun if self.is_unique[at] else f"{topic.noun} {at + 1}"
                slots = {"place": topic.location, "box": box_slot(name)}
                move = follow("box", None, BOX, slots, 4.0, box=at)
                answer_act = "box" if topic.location and PLACE not in covered_aspects else "box_only"
                answer = self.words.answer(answer_act, None, self.rng, slots)
                yield move._replace(answer=(lambda: use_plural_pronouns(answer())) if topic.is_plural else answer)
        elif (
            topic.location and PLACE not in covered_aspects and self.is_unique[at]
        ):  # else the question names the place
            yield follow("where", None, PLACE, {"place": topic.location})
        if topic.size and SIZE not in covered_aspects:
            yield follow("size", None, SIZE, {"size": topic.size})
        if (topic.hedge or self.rng.random() < 0.35) and SURE not in covered_aspects:
            yield follow("sure", topic.hedge, SURE, {}, weight * (1.0 if topic.hedge else 0.4))
        if topic.cause and CAUSE not in covered_aspects:
            yield follow("cause", topic.cause_hedge, CAUSE, {"cause": topic.cause})
        is_sided = topic.statement.lesion or topic.statement.entity in SIDED_FINDINGS
        is_one_sided = is_sided and len(topic.statement.sides) == 1 and self.is_unique[at]
        if last and PLACE in covered_aspects and SIDE not in covered_aspects and is_one_sided:
            (side,) = topic.statement.sides
            yield follow("side", "one_side", SIDE, {"side": side, "other_side": "left" if side == "right" else "right"})
        if topic.mask_id and MASK not in covered_aspects:
            slots = {"the_np": topic.describe(size=False, article="the")}
            yield follow("segment", None, MASK, slots, weight * 0.6, mask=at)
        if covered_aspects == {MENTIONED} and len(topic.sentence.split()) > 5:
            yield follow("describe", None, QUOTED, {"sentence": topic.sentence})

    def _denials(self, state: DialogueState) -> Iterator[Move]:
        denials = [denial for denial in self.askable_denials if (denial.noun, MENTIONED) not in state.mentioned]
        self.rng.shuffle(denials)
        for denial in denials[:2]:
            a_finding = denial.noun if denial.is_mass else with_article(denial.noun)
            slots = {"finding": denial.noun, "a_finding": a_finding}
            fields = {"question_act": PRESENCE, "denies": True, "facts": denial.facts, "presence_of": denial.noun}
            yield self._move("absent", None, slots, 1.4, ((denial.noun, MENTIONED),), **fields)

    def _negatives(self, state: DialogueState) -> Iterator[Move]:
        """Yield an open question about findings that the image does not show. Its answer lists some of them."""
        denials = [denial for denial in self.subjects.denials if (denial.noun, MENTIONED) not in state.mentioned]
        if denials and ("negatives", MENTIONED) not in state.mentioned:
            listed = self.rng.sample(denials, min(len(denials), self.rng.randint(1, MAX_LISTED)))
            mentions = (("negatives", MENTIONED), *((denial.noun, MENTIONED) for denial in listed))
            slots = {"list": join_in_words([denial.noun for denial in listed], "or")}
            facts = tuple(fact for denial in listed for fact in denial.facts)
            yield self._move("negatives", None, slots, 1.4, mentions, denies=True, facts=facts)

    def _general_subjects(self, state: DialogueState) -> Iterator[Move]:
        subjects, facts, mentioned = self.subjects, self.facts, state.mentioned
        if subjects.heart and mentioned.isdisjoint(HEART_MENTIONS):
            yield self._move("heart", subjects.heart, {}, 1.0, HEART_MENTIONS, facts=subjects.heart_facts)
        for organ, (text, ids) in subjects.organs.items():
            if (organ, MENTIONED) not in mentioned:
                slots = {"organ": organ, "sentence": text}
                yield self._move("organ", None, slots, 0.9, ((organ, MENTIONED),), facts=ids)
        device_label, device_mentions = load_label_names().device, (("devices", MENTIONED),)
        if subjects.devices and mentioned.isdisjoint(device_mentions):
            slots = _sentence_slots(" ".join(sentence for sentence, _ in subjects.devices[:2]))
            ids = tuple(fact_id for _, sentence_ids in subjects.devices for fact_id in sentence_ids)
            yield self._move("devices", "some", slots, 1.2, device_mentions, facts=ids)
        elif device_label in facts.absent and mentioned.isdisjoint(device_mentions):
            ids = (facts.ids[device_label],) if device_label in facts.ids else ()
            yield self._move("devices", "none", {}, 0.6, device_mentions, denies=True, facts=ids)
        if facts.view in ("PA", "AP") and ("view", MENTIONED) not in mentioned:
            slots = {"view": facts.view, "a_view": f"{'an' if facts.view == 'AP' else 'a'} {facts.view}"}
            yield self._move("view", None, slots, 0.35, (("view", MENTIONED),))

    def _terms(self, state: DialogueState) -> Iterator[Move]:
        if ("term", MENTIONED) in state.mentioned:
            return
        weight = {"clinician": 0.15, "student": 1.0, "terse": 0.4}[self.register]
        for term, definition in self.words.terms_in(turn.answer for turn in state.turns[-2:]):
            slots, mentions = {"term": f"“{term}”", "definition": definition}, (("term", term), ("term", MENTIONED))
            yield self._move("term", None, slots, weight, mentions, topic=state.moves[-1].topic, refers=True)

    def _anything_else(self, state: DialogueState) -> Iterator[Move]:
        if len(state.turns) < 2 or ("else", MENTIONED) in state.mentioned:
            return
        topics = range(len(self.subjects.topics))
        topic_numbers = [at for at in topics if (at, MENTIONED) not in state.mentioned][:MAX_LISTED]
        if topic_numbers:
            move = self._list_findings("else", "more", topic_numbers, 0.6)
            yield move._replace(weight=1.5, mentions=(*move.mentions, ("else", MENTIONED)), refers=True)
            return
        has_open_device = self.subjects.devices and ("devices", MENTIONED) not in state.mentioned
        if len(state.turns) >= 4 and not self.subjects.has_unnamed and not has_open_device:
            yield self._move("else", "nothing", {}, 0.8, (("else", MENTIONED),), refers=True)

    def _summary(self, state: DialogueState) -> Iterator[Move]:
        topics = self.subjects.topics
        topic_numbers = [at for at in range(len(topics)) if (at, MENTIONED) in state.mentioned]
        is_complete = len(topic_numbers) == len(topics) <= MAX_LISTED and not self.subjects.has_unnamed
        if len(topic_numbers) > 1 and is_complete:
            slots = {"list": join_in_words([topics[at].describe(place=not self.is_unique[at]) for at in topic_numbers])}
            yield self._move("summary", "found", slots, 2.5, refers=True, facts=self._facts_of(topic_numbers))

    def _facts_of(self, topic_numbers: list[int]) -> tuple[str, ...]:
        return tuple(fact_id for number in topic_numbers for fact_id in self.subjects.topics[number].facts)

    def _list_findings(self, act: str, case: str, topic_numbers: list[int], full: float) -> Move:
        """Return a move that lists findings, in a wording for ``act`` (what a question asks for) and ``case``.
        ``full``: probability that a finding is listed with size and location."""
        topics = [self.subjects.topics[number] for number in topic_numbers]
        texts, mentions = [], []
        for number, topic in zip(topic_numbers, topics, strict=True):
            long, cause = self.rng.random() < full, self.rng.random() < 0.5 and len(topics) == 1
            texts.append(topic.describe(size=long, place=long or not self.is_unique[number], cause=cause))
            mentions += _mentioned_aspects(number, long, cause and bool(topic.cause))
        num_listed = 1 if any(topic.has_place for topic in topics) else len(texts)
        fields = {"topic": topic_numbers[0] if len(topics) == 1 else None, "facts": self._facts_of(topic_numbers)}
        slots = {"list": join_in_words(texts[:num_listed])}
        first = self._move(act, case, slots, mentions=tuple(mentions), **fields)
        further = [self.words.answer("also", None, self.rng, {"np": text}) for text in texts[num_listed:]]
        plural_texts = [text for topic, text in zip(topics, texts, strict=True) if topic.is_plural]

        def answer() -> str:
            sentences = " ".join((first.answer(), *(further_answer() for further_answer in further)))
            return reduce(agree_with_plural, plural_texts, sentences)

        return first._replace(answer=answer)

    def _move(
        self, act: str, case, slots: dict, weight: float = 1.0, mentions: tuple = (), *, question_act: str = "",
        about: Topic | None = None, **fields,
    ) -> Move:  # fmt: skip
        """Draw wordings for ``act`` and ``case``. Return the move, with ``fields``. ``about``: its finding."""
        question, wording = self.words.question(question_act or act, self.register, self.rng, slots)
        if act == BOX:  # the caller adds the answer
            answer: Callable[[], str] = str
        else:
            answer = self.words.answer(*((case, None) if act == SIDE else (act, case)), self.rng, slots)
        if about is not None and about.is_plural:
            base_question, finding = question, slots["the_finding"]
            question = lambda: capitalize(agree_with_plural(base_question(), finding))  # noqa: E731
            if act != "describe":
                base_answer, noun = answer, slots.get("np", about.noun)
                answer = lambda: use_plural_pronouns(agree_with_plural(base_answer(), noun))  # noqa: E731
        return Move(question, answer, question_act or act, wording, weight, mentions, **fields)


def _mentioned_aspects(at: int, full: bool, cause: bool) -> tuple[tuple[int, str], ...]:
    return tuple((at, aspect) for aspect in (MENTIONED, *((PLACE, SIZE) if full else ()), *((CAUSE,) if cause else ())))


def _sentence_slots(text: str) -> dict[str, str]:
    return {"sentence": text, "sentence_low": lower_first(text)}

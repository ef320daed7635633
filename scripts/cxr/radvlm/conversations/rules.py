"""The default engine: a walk over what can be asked about the facts, without a model.

A walk opens generally and has as many rounds as are drawn. It refers to an earlier answer at least once, denies
something where something is denied, and, grounded, asks for a box. What fails the strict check is walked again.
"""

from collections.abc import Mapping, Sequence
from random import Random

from cxr.base.acyclic import acyclic
from cxr.base.seeds import rng
from cxr.radvlm import statements
from cxr.radvlm.conversations import check
from cxr.radvlm.conversations.engine import Asked, ConversationOptions, Engine, Made
from cxr.radvlm.conversations.moves import Move, Moves, State
from cxr.radvlm.conversations.record import Conversation, Turn
from cxr.radvlm.conversations.topics import Subjects, subjects
from cxr.radvlm.conversations.wordings import wordings
from cxr.radvlm.conversations.written import messages_of
from cxr.radvlm.samples import slot

RESOURCE_FILES = ("radvlm/conversations.yaml", "radvlm/glossary.yaml", "radvlm/statements.yaml", "lexicon")
TOO_FEW = "too_few_facts"


def load(options: ConversationOptions, execution: Mapping) -> Engine:
    """Return the engine."""
    del execution

    def converse(asked: Sequence[Asked]) -> list[Made]:
        with acyclic():
            return _conversations(asked, options)

    return Engine(converse, "rules")


def _conversations(asked: Sequence[Asked], options: ConversationOptions) -> list[Made]:
    """Return what became of each: all are read, then walked, then checked, and walked again where one does not hold."""
    read = [statements.of_text(list(one.facts.sentences.values())) for one in asked]
    about = [subjects(one.facts, own, wordings()) for one, own in zip(asked, read, strict=True)]
    held = [check.known(one.facts, own) for one, own in zip(asked, read, strict=True)]
    made = [Made(reason=TOO_FEW)] * len(asked)
    left = range(len(asked))
    for attempt in range(options.retries + 1):
        walked = {at: walk(asked[at], about[at], options, _draw(asked[at], attempt, options)) for at in left}
        for at, one in walked.items():
            if one is not None:
                made[at] = _checked(one, held[at], asked[at].grounded, options)
        left = [at for at in left if made[at].conversation is None]
    return made


def _draw(asked: Asked, attempt: int, options: ConversationOptions) -> Random:
    facts = asked.facts
    named = (facts.source, facts.image_id, asked.grounded, asked.number, attempt)
    return rng(options.seed, "radvlm_conversations", *named)


def _checked(one: Conversation, held: check.Known, grounded: bool, options: ConversationOptions) -> Made:
    found = check.fault(messages_of(one), held, grounded, options.rounds) if options.check == "strict" else None
    return Made(one) if found is None else Made(reason=found.reason, detail=found.detail)


def walk(asked: Asked, about: Subjects, options: ConversationOptions, draw) -> Conversation | None:
    """Return a conversation, None if the facts give fewer rounds than it needs."""
    words = wordings()
    moves = Moves(asked, about, words, draw.choice(list(words.registers)), draw, options.segment_turns)
    state, done = State(), [moves.opening()]
    state.add(done[0])
    rounds = draw.randint(*options.rounds)
    while len(done) < rounds:
        last = len(done) == rounds - 1
        offered = [move for move in moves.offered(state, last) if not state.asked(move.offer)]
        move = _chosen(offered, done, rounds - len(done), asked.grounded, about, draw)
        if move is None:
            break
        state.add(move)
        done.append(move)
    if len(done) < options.rounds[0] or _owed(done, asked.grounded, about):
        return None
    return _made(done, state.turns, about)


def _owed(done: Sequence[Move], grounded: bool, about: Subjects) -> set[str]:
    """Return what a conversation must still have: a reference, a denial where one is known, a box if grounded."""
    owed = set() if any(move.refers for move in done) else {"refers"}
    if about.denials and not any(move.denies for move in done):
        owed.add("denies")
    return owed | ({"box"} if grounded and all(move.box is None for move in done) else set())


def _chosen(offered: list[Move], done: list[Move], left: int, grounded: bool, about: Subjects, draw) -> Move | None:
    """Return a move, drawn by weight; one that is owed as soon as no round is to spare."""
    owed = _owed(done, grounded, about)
    if left <= len(owed):
        wanted = [move for move in offered if _pays(move, owed)]
        offered = wanted or offered
    if not offered:
        return None
    return draw.choices(offered, [move.weight for move in offered])[0]


def _pays(move: Move, owed: set[str]) -> bool:
    paid = {"refers": move.refers, "denies": move.denies, "box": move.box is not None}
    return any(paid[name] for name in owed)


def _made(done: Sequence[Move], turns: Sequence[Turn], about: Subjects) -> Conversation:
    topics = about.topics
    boxes = {}
    for move, turn in zip(done, turns, strict=True):
        if move.box is not None:
            name = turn.answer.split("<box:", 1)[1].split(">", 1)[0]
            assert slot(name) in turn.answer
            boxes[name] = topics[move.box].boxes
    masks = tuple(topics[move.mask].mask_id for move in done if move.mask is not None)
    facts = tuple(dict.fromkeys(fact for move in done for fact in move.facts))
    return Conversation(tuple(turns), boxes, masks, facts)

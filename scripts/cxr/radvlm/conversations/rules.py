"""The default engine: a random walk over the questions that the facts can answer, without a model.

A walk starts with a general question and has a random number of rounds. It refers to an earlier answer at least once,
has a denial if the facts deny something, and asks for a box if it is grounded. Walks that fail the check are repeated.
"""

import gc
from collections.abc import Mapping, Sequence

from cxr.base.seeds import make_rng
from cxr.radvlm import statements
from cxr.radvlm.conversations import check
from cxr.radvlm.conversations.engine import (
    Conversation,
    ConversationOptions,
    ConversationOutcome,
    ConversationRequest,
    Engine,
    Turn,
    to_messages,
)
from cxr.radvlm.conversations.moves import DialogueState, Move, MoveGenerator
from cxr.radvlm.conversations.topics import Subjects, collect_subjects
from cxr.radvlm.conversations.wordings import load_wordings
from cxr.radvlm.samples import box_slot

RESOURCE_FILES = ("radvlm/conversations.yaml", "radvlm/glossary.yaml", "radvlm/statements.yaml", "lexicon")
TOO_FEW = "too_few_facts"


def load(options: ConversationOptions, execution: Mapping) -> Engine:
    """Return the engine."""
    del execution

    def converse(requests: Sequence[ConversationRequest]) -> list[ConversationOutcome]:
        gc.disable()  # it would search for cycles among many objects that have none
        try:
            return [_converse(request, options) for request in requests]
        finally:
            gc.enable()

    return Engine(converse, "rules")


def _converse(request: ConversationRequest, options: ConversationOptions) -> ConversationOutcome:
    """Return the outcome of a request; a walk that fails the check is repeated up to ``retries`` times."""
    facts = request.facts
    parsed = statements.read_statements(list(facts.sentences.values()))
    subjects, evidence = collect_subjects(facts, parsed, load_wordings()), check.gather_evidence(facts, parsed)
    outcome = ConversationOutcome(reason=TOO_FEW)
    for attempt in range(options.retries + 1):
        seed_parts = (facts.source, facts.image_id, request.grounded, request.number, attempt)
        conversation = walk(request, subjects, options, make_rng(options.seed, "radvlm_conversations", *seed_parts))
        if conversation is None:
            continue
        fault = None
        if options.check == "strict":
            fault = check.find_fault(to_messages(conversation), evidence, request.grounded, options.rounds)
        if fault is None:
            return ConversationOutcome(conversation)
        outcome = ConversationOutcome(reason=fault.reason, detail=fault.detail)
    return outcome


def walk(request: ConversationRequest, about: Subjects, options: ConversationOptions, draw) -> Conversation | None:
    """Return a conversation, None if the facts do not allow enough rounds."""
    words = load_wordings()
    moves = MoveGenerator(request, about, words, draw.choice(list(words.registers)), draw, options.segment_turns)
    state, done = DialogueState(), [moves.opening()]
    state.add(done[0])
    rounds = draw.randint(*options.rounds)
    while len(done) < rounds:
        last = len(done) == rounds - 1
        offered = [move for move in moves.candidates(state, last) if not state.was_asked(move.offer)]
        move = _choose_move(offered, done, rounds - len(done), request.grounded, about, draw)
        if move is None:
            break
        state.add(move)
        done.append(move)
    if len(done) < options.rounds[0] or _unmet_requirements(done, request.grounded, about):
        return None
    return _build_conversation(done, state.turns, about)


def _unmet_requirements(done: Sequence[Move], grounded: bool, about: Subjects) -> set[str]:
    """Return what a conversation still needs: a reference, a denial if the facts have one, a box if grounded."""
    owed = set() if any(move.refers for move in done) else {"refers"}
    if about.denials and not any(move.denies for move in done):
        owed.add("denies")
    return owed | ({"box"} if grounded and all(move.box is None for move in done) else set())


def _choose_move(
    offered: list[Move], done: list[Move], rounds_left: int, grounded: bool, about: Subjects, draw
) -> Move | None:
    """Draw a move by weight; only from those that meet a requirement once no round is to spare."""
    owed = _unmet_requirements(done, grounded, about)
    if rounds_left <= len(owed):
        offered = [move for move in offered if _unmet_requirements([move], grounded, about) & owed != owed] or offered
    return draw.choices(offered, [move.weight for move in offered])[0] if offered else None


def _build_conversation(done: Sequence[Move], turns: Sequence[Turn], about: Subjects) -> Conversation:
    topics = about.topics
    boxes = {}
    for move, turn in zip(done, turns, strict=True):
        if move.box is not None:
            name = turn.answer.split("<box:", 1)[1].split(">", 1)[0]
            assert box_slot(name) in turn.answer
            boxes[name] = topics[move.box].boxes
    masks = tuple(topics[move.mask].mask_id for move in done if move.mask is not None)
    facts = tuple(dict.fromkeys(fact for move in done for fact in move.facts))
    return Conversation(tuple(turns), boxes, masks, facts)

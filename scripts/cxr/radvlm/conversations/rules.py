"""The engine ``rules`` draws each question at random among those that the facts can answer, without a model.

At least one question of a conversation must refer to an earlier answer. If the facts deny findings, an answer must deny
one. In a grounded conversation, an answer must give a box. A conversation that fails one of these is drawn again.
"""

import gc
from collections.abc import Mapping, Sequence
from random import Random

from cxr.base.seeds import make_rng
from cxr.radvlm import statements
from cxr.radvlm.conversations import check
from cxr.radvlm.conversations.engine import ROUNDS, TOO_FEW, Conversation, ConversationOptions, Engine, Fault, Request
from cxr.radvlm.conversations.moves import DialogueState, Move, MoveGenerator, PresenceBalance
from cxr.radvlm.conversations.topics import Subjects, collect_subjects
from cxr.radvlm.conversations.wordings import load_wordings
from cxr.radvlm.samples import slot_names

RESOURCE_FILES = ("radvlm/conversations.yaml", "radvlm/glossary.yaml", "radvlm/statements.yaml", "lexicon")
RETRIES = 4  # further attempts after a conversation that is too short, misses a requirement or fails the check


def load(options: ConversationOptions, _execution: Mapping) -> Engine:
    balance = PresenceBalance()

    def converse(requests: Sequence[Request]) -> list[Conversation | Fault]:
        gc.disable()  # garbage collection would search many objects that form no cycles
        try:
            return [_converse(request, options, balance) for request in requests]
        finally:
            gc.enable()

    return Engine(converse, "rules")


def _converse(request: Request, options: ConversationOptions, balance: PresenceBalance) -> Conversation | Fault:
    facts, last_fault = request.facts, Fault(TOO_FEW)
    parsed = statements.read_statements(list(facts.sentences.values()))
    subjects, evidence = collect_subjects(facts, parsed, load_wordings()), check.gather_evidence(facts, parsed)
    for attempt in range(RETRIES + 1):
        seed_parts = (facts.source, facts.image_id, request.grounded, request.number, attempt)
        rng = make_rng(options.seed, "radvlm_conversations", *seed_parts)
        if (moves_and_turns := walk(request, subjects, rng, balance)) is None:
            continue
        moves, conversation = moves_and_turns
        is_checked = options.check == "strict"
        fault = check.find_fault(conversation.to_messages(), evidence, request.grounded) if is_checked else None
        if fault is None:
            balance.count(facts.split, moves)
            return conversation
        last_fault = fault
    return last_fault


def walk(
    request: Request, about: Subjects, draw: Random, balance: PresenceBalance
) -> tuple[list[Move], Conversation] | None:
    """Draw a conversation at random. Return (its moves, the conversation); a move is a question with its answer.
    Return None if the conversation is too short or lacks a required move. ``about``: subjects of the image."""
    words = load_wordings()
    generator = MoveGenerator(request, about, words, draw.choice(list(words.registers)), draw, balance)
    state, has_denials = DialogueState(), bool(about.denials)
    state.add(generator.opening())
    rounds = draw.randint(*ROUNDS)
    for rounds_left in range(rounds - 1, 0, -1):
        offered = [move for move in generator.candidates(state, rounds_left == 1) if not state.was_asked(move)]
        owed = _unmet_requirements(state.moves, request.grounded, has_denials)
        if rounds_left <= len(owed):  # each remaining round must meet a requirement
            fitting = (move for move in offered if owed - _unmet_requirements([move], request.grounded, has_denials))
            offered = list(fitting) or offered
        if not offered:
            break
        state.add(draw.choices(offered, [move.weight for move in offered])[0])
    if len(state.moves) < ROUNDS[0] or _unmet_requirements(state.moves, request.grounded, has_denials):
        return None
    boxes = {
        slot_names(turn.answer)[0]: about.topics[move.box].boxes
        for move, turn in zip(state.moves, state.turns, strict=True)
        if move.box is not None
    }
    masks = tuple(about.topics[move.mask].mask_id for move in state.moves if move.mask is not None)
    facts = tuple(dict.fromkeys(fact for move in state.moves for fact in move.facts))
    return state.moves, Conversation(tuple(state.turns), boxes, masks, facts)


def _unmet_requirements(moves: Sequence[Move], grounded: bool, has_denials: bool) -> set[str]:
    """Return the requirements that no move meets: ``refers`` (to an earlier answer), ``denies`` (a finding, only if
    ``has_denials``) and ``box`` (gives a box, only if ``grounded``)."""
    owed = set() if any(move.refers for move in moves) else {"refers"}
    if has_denials and not any(move.denies for move in moves):
        owed.add("denies")
    return owed | ({"box"} if grounded and all(move.box is None for move in moves) else set())

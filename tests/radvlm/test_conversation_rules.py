"""Conversations of the engine rules: they hold, vary, and keep what the facts say."""

import gc
import json
import os
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cxr.language.reports import sentences
from cxr.radvlm import statements
from cxr.radvlm.conversations import check
from cxr.radvlm.conversations.engine import Conversation, ConversationOptions, Fault, Request, load_engine
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.wordings import Wordings, agree_with_plural, expand_choices, load_wordings
from cxr.radvlm.filtered.engine import FilterOptions
from cxr.radvlm.filtered.rules import load_sentence_filter
from radvlm_pictures import FOLDER, PICTURES, facts_of

OPTIONS = ConversationOptions("rules", 1, 100_000, "strict", 42)
ENGINE = load_engine(OPTIONS, {})
SHARED = Path(os.environ.get("CXR_ILS_SHARED", Path(__file__).parents[2] / "../shared")).resolve()
OPENI = SHARED / "fixtures/openi_reports.jsonl"


def of_name(name: str, seed: int = 42, grounded: bool | None = None):
    options = ConversationOptions("rules", 1, 100_000, "strict", seed)
    kind = PICTURES[name]["grounded"] if grounded is None else grounded
    (made,) = load_engine(options, {}).converse([Request(facts_of(name), kind)])
    return made


@pytest.mark.parametrize("name", PICTURES)
def test_a_conversation_holds_and_is_the_same_each_time(name):
    made = of_name(name)
    assert made == of_name(name)
    held = check.gather_evidence(facts_of(name))
    for seed in range(20):
        one = of_name(name, seed)
        assert check.find_fault(one.to_messages(), held, PICTURES[name]["grounded"]) is None


def test_a_grounded_conversation_gives_given_boxes_and_a_standard_one_none():
    given = {phrase.boxes for phrase in facts_of("effusion").phrases}
    for seed in range(20):
        assert set(of_name("effusion", seed).boxes.values()) <= given
        assert of_name("effusion", seed).boxes
        assert not of_name("effusion", seed, grounded=False).boxes


def test_a_conversation_denies_what_is_denied_and_keeps_the_doubt():
    for seed in range(20):
        turns = of_name("opacity", seed).turns
        answers = [turn.answer for turn in turns if turn.act != "term"]
        said = [
            one
            for text in answers
            for part in statements.split_sentences(text)
            for one in statements.read_sentence(part)
        ]
        assert any(not one.affirmed for one in said) or any(turn.act == "devices" for turn in turns)
        assert all(
            one.hedge == 2 for one in said if one.entity == "pneumonia" and one.affirmed and "lung" not in answers
        )


def test_without_facts_there_is_no_conversation():
    bare = ImageFacts("own", "a", "s", "p", "train", sentences={1: "Scoliosis."})
    (made,) = ENGINE.converse([Request(bare, False)])
    assert made == Fault("too_few_facts")


def test_conversations_make_no_cycles_that_the_collector_would_have_to_find():
    asked = [Request(facts_of(name), one["grounded"]) for name, one in PICTURES.items()]
    ENGINE.converse(asked)  # words and patterns are loaded
    gc.collect()
    ENGINE.converse(asked)
    assert gc.isenabled()
    assert gc.collect() == 0


def test_verbs_agree_with_the_plural_that_they_speak_of():
    for text, wanted in (
        ("There is probably effusions.", "There are probably effusions."),
        ("Is effusions seen? Does effusions recur?", "Are effusions seen? Do effusions recur?"),
        (
            "Effusions on both sides is small, the heart is large.",
            "Effusions on both sides are small, the heart is large.",
        ),
        ("It is probably effusions.", "It is probably effusions."),
        ("Where is the scar?", "Where is the scar?"),
    ):
        assert agree_with_plural(text, "effusions") == wanted


def test_each_combination_is_a_wording_and_no_two_of_an_act_are_equal():
    assert expand_choices("(a|b) c(?| d?)") == ["a c?", "a c d?", "b c?", "b c d?"]
    for act, registers in load_wordings().questions.items():
        every = [text for held in registers.values() for text in held]
        assert len(every) == len(set(every)), act
        assert len(every) >= 24, act


REACHING = {
    "hedges": [
        "Probable left pleural effusion.", "A possible nodule in the right upper lobe.", "Heart size is not enlarged.",
        "Right basilar opacity most likely represents pneumonia.", "Left apical opacity due to atelectasis.",
    ],
    "normal": ["No abnormality.", "No pneumothorax.", "No pleural effusion.", "No edema.", "No consolidation."],
    "quiet": ["The heart is normal in size.", "No pneumothorax.", "No pleural effusion.", "No edema.", "No mass."],
}  # fmt: skip
"""Reports that say what PICTURES leave unsaid."""


def test_every_wording_of_the_resource_can_be_drawn(monkeypatch):
    """Of each list one wording is drawn, so it is enough that each is drawn from. None lies there unused."""
    drawn = set()
    question, answer = Wordings.question, Wordings.answer
    monkeypatch.setattr(
        Wordings,
        "question",
        lambda own, act, register, *to: drawn.add((act, register)) or question(own, act, register, *to),
    )
    monkeypatch.setattr(
        Wordings, "answer", lambda own, act, case, *to: drawn.add((act, case)) or answer(own, act, case, *to)
    )
    told = [ImageFacts("own", name, "s", "p", "train", sentences=dict(enumerate(held, start=1)),
                       present=("No Finding",) if name == "normal" else ())
            for name, held in REACHING.items()]  # fmt: skip
    told += [replace(facts_of(name), masks={"effusion": "m"}) for name in PICTURES]
    ENGINE.converse([Request(one, bool(one.phrases), number) for one in told for number in range(12)])
    asked = {(act, register) for act, held in load_wordings().questions.items() for register in held}
    cases = {
        (act, case)
        for act, held in load_wordings().answers.items()
        for case in (held if isinstance(held, dict) else [None])
    }
    assert (asked | cases) - drawn == set()


def test_the_noun_of_a_finding_is_read_as_that_finding():
    for entity, noun in load_wordings().nouns.items():
        for text in filter(None, (noun.singular, noun.plural)):
            assert entity in {one.entity for one in statements.read_sentence(f"There is {text}.")}, text


def test_no_yes_or_no_stands_against_the_sense_of_its_question():
    """A yes says that a finding is there: not that there is doubt, that it is excluded, or that nothing was missed."""
    words = load_wordings()
    asked_as = {"present": ("presence",), "absent": ("presence",), "one_side": ("side",), "sure": ("sure", "sure_it")}
    inverted = re.compile(r"\b(?:doubt|exclud|rule out|wrong|miss|mistaken|hedge|worry)|\b(?:all|only|not|no)\b", re.I)
    for act, answers in words.answers.items():
        texts = [text for case in answers.values() for text in case] if isinstance(answers, dict) else answers
        if not any(re.match(r"(?:yes|no)\b(?! \{| further| abnormality)", text, re.IGNORECASE) for text in texts):
            continue
        for question_act in asked_as.get(act, (act,)):
            questions = [text for register in words.questions[question_act].values() for text in register]
            against = [
                text for text in questions if inverted.search(text.replace("or not?", "").replace("yes or no?", ""))
            ]
            assert not against, (act, against)


def test_presence_is_asked_in_the_same_words_of_what_is_there_and_of_what_is_not():
    acts = {
        (turn.act, move_denies(turn.answer))
        for name in PICTURES
        for seed in range(30)
        for turn in of_name(name, seed).turns
    }
    assert {("presence", True), ("presence", False)} <= acts
    assert not {act for act, _ in acts} & {"present", "absent"}


@pytest.mark.parametrize(
    "row", yaml.safe_load((FOLDER / "doubtful.yaml").read_text("utf-8")), ids=lambda row: row["sentence"]
)
def test_a_doubtful_sentence_becomes_no_statement(row):
    plain = ["The lungs are clear.", "No pneumothorax.", "The bones are intact.", "No pleural effusion.", "No nodule."]
    plain += ["The mediastinal contours are normal.", "Small calcified granuloma in the left upper lobe."]
    sentences_of_report = dict(enumerate([row["sentence"], *plain], start=1))
    images = [ImageFacts("own", f"i{n}", f"s{n}", "p", "train", sentences=sentences_of_report) for n in range(30)]
    conversations = load_engine(OPTIONS, {}).converse([Request(facts, False) for facts in images])
    answers = [
        turn.answer
        for talk in conversations
        if isinstance(talk, Conversation)
        for turn in talk.turns
        if turn.act != "term"
    ]
    assert len(answers) > 100
    own_words = row["sentence"].rstrip(".").lower()
    assert not [text for text in answers if re.search(row["never"], text, re.I) and own_words not in text.lower()]


def test_a_summary_has_every_finding():
    report = {1: "Emphysema.", 2: "Mild degenerative change.", 3: "Scoliosis.", 4: "Small left pleural effusion."}
    images = [ImageFacts("own", f"i{n}", f"s{n}", "p", "train", sentences=report) for n in range(60)]
    conversations = load_engine(OPTIONS, {}).converse([Request(facts, False) for facts in images])
    acts = Counter(turn.act for talk in conversations if isinstance(talk, Conversation) for turn in talk.turns)
    assert acts["overview"] > 10
    assert not acts["summary"]  # four findings are more than an answer lists


def presence_answers(conversations: list) -> dict[str, Counter[bool]]:
    """Return {finding: how often a question of its presence is denied (True) and affirmed}."""
    nouns = {name: noun.singular for noun in load_wordings().nouns.values() for name in (noun.singular, noun.plural)}
    pattern = re.compile("|".join(sorted(map(re.escape, filter(None, nouns)), key=len, reverse=True)))
    counts = defaultdict(Counter)
    for turn in (turn for talk in conversations if isinstance(talk, Conversation) for turn in talk.turns):
        if turn.act == "presence":
            name = nouns[pattern.search(turn.question[0].lower() + turn.question[1:])[0]]
            counts[name][re.search(r"\bno\b", turn.answer, re.IGNORECASE) is not None] += 1
    return counts


def test_the_name_of_a_finding_does_not_tell_whether_it_is_there():
    """Most images of a cohort lack a finding; its presence is asked as often where it is there."""
    absent = {1: "No pneumothorax.", 2: "The lungs are clear.", 3: "The bones are intact.", 4: "The heart is normal."}
    present = absent | {1: "Large right pneumothorax.", 2: "Small left pleural effusion."}
    images = [
        ImageFacts("own", f"i{n}", f"s{n}", f"p{n}", "train", sentences=absent if n % 10 else present)
        for n in range(200)
    ]
    conversations = load_engine(OPTIONS, {}).converse([Request(facts, False) for facts in images])
    assert sum(isinstance(talk, Conversation) for talk in conversations) > 150
    answers = presence_answers(conversations)["pneumothorax"]
    assert answers[True] >= 5
    assert abs(answers[True] - answers[False]) <= 1


def move_denies(answer: str) -> bool:
    return all(not one.affirmed for one in statements.read_sentence(answer))


def test_a_term_is_explained_without_a_statement_about_the_picture():
    terms = load_wordings().terms
    assert len(terms) >= 60
    held = check.gather_evidence(facts_of("normal"))
    for term, definition in terms.items():
        turns = [["How is it?", "Fine."], [f"What does “{term}” mean?", definition]]
        turns += [[f"And number {number}?", "Fine."] for number in range(3)]
        messages = [
            {"role": role, "text": text} for turn in turns for role, text in zip(check.ROLES, turn, strict=True)
        ]
        assert check.find_fault(messages, held, False) is None, term


# ---- real reports -------------------------------------------------------------------------------------------------
def reports(every: int) -> list[tuple[ImageFacts, int]]:
    """Return every n-th report of Open-i as facts, with the number of its findings."""
    keep = load_sentence_filter(FilterOptions("rules", "drop"))
    found = []
    for number, line in enumerate(OPENI.read_text(encoding="utf-8").splitlines()[::every]):
        row = json.loads(line)
        text = row["findings"].strip() or row["impression"].strip()
        kept = [keep(text[start:end]).text for start, end in sentences.split_sentences(text)]
        held = {at: told for at, told in enumerate(kept, start=1) if told}
        stated = statements.read_statements(list(held.values()))
        findings = {(statement.entity, statement.affirmed) for statement in stated if not statement.explains}
        found.append(
            (ImageFacts("own", f"i{number}", f"s{number}", f"p{number}", "train", sentences=held), len(findings))
        )
    return found


@pytest.mark.skipif(not OPENI.is_file(), reason="no Open-i reports (CXR_ILS_SHARED)")
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_conversations_of_real_reports(every):
    given = reports(every)
    made = load_engine(OPTIONS, {}).converse([Request(facts, False) for facts, _ in given])
    rich = [one for (_, findings), one in zip(given, made, strict=True) if findings >= 3]
    assert sum(isinstance(one, Conversation) for one in rich) >= 0.85 * len(rich)
    for (facts, _), one in zip(given, made, strict=True):
        if isinstance(one, Conversation):
            assert check.find_fault(one.to_messages(), check.gather_evidence(facts), False) is None
    failed = [one for one in made if isinstance(one, Fault) and one.reason != "too_few_facts"]
    assert len(failed) <= 0.01 * len(made)  # no walk of theirs holds, so that they are left out with their reason
    diverse(made)
    answers = presence_answers(made)
    assert all(abs(counts[True] - counts[False]) <= 1 for counts in answers.values()), answers


def diverse(made) -> None:
    """Hold the diversity of conversations: sequences, questions, and no wording above a tenth of its act."""
    told = [one for one in made if isinstance(one, Conversation)]
    sequences = {tuple(turn.question for turn in one.turns) for one in told}
    assert len(sequences) >= 0.9 * len(told)
    assert len({turn.question for one in told for turn in one.turns}) >= 200
    by_act = defaultdict(Counter)
    for one in told:
        for turn in one.turns:
            by_act[turn.act][turn.wording] += 1
    for act, counts in by_act.items():
        if counts.total() >= 100:  # of fewer questions one wording is a tenth by chance
            assert max(counts.values()) <= 0.1 * counts.total(), act

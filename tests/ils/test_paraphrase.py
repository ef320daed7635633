"""Paraphrases: the meaning of a wording, the two engines, the stage's files, and the workflow."""

import itertools
import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import language_model
from conftest import ROOT
from cxr.base.errors import UserError
from cxr.base.lesions import LESION_TYPES
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.base.vocabulary import LESIONS, PERSONAS, VALID_LOCATIONS
from cxr.ils.paraphrase import engine, make_paraphrases, rules, vllm, wording_checks
from cxr.ils.paraphrase.engine import Task
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.paraphrase.wording_checks import find_problem
from cxr.ils.templates import (
    BASIC,
    CARDIOMEGALY,
    GLOBAL,
    INFERENCE,
    OPACITY,
    Instruction,
    parse_instruction,
    write_instruction,
)

RULES = ParaphraseOptions(personas=list(PERSONAS))
PLACES = [
    places
    for number in range(1, len(VALID_LOCATIONS) + 1)
    for places in itertools.combinations(VALID_LOCATIONS, number)
]


def meanings():
    """Everything that an instruction of Table 2 can ask for."""
    for lesion in LESIONS:
        yield Instruction(GLOBAL, lesion, ())
        if lesion != CARDIOMEGALY:
            yield from (Instruction(BASIC, lesion, places) for places in PLACES)
    yield from (Instruction(INFERENCE, OPACITY, places) for places in PLACES)


def plain(meant: Instruction) -> str:
    return write_instruction(meant.type, meant.word, meant.location)


def task(meant: Instruction, *taken: str) -> Task:
    return Task(plain(meant), meant, taken)


EDEMA = Instruction(BASIC, "edema", ("right lung base",))


# ---- the reader ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "lesion", "places"),
    [
        ("Outline the pleural effusion at the base of the left lung.", BASIC, "effusion", ["left lung base"]),
        ("Where's the fluid around the lungs? Please mark it.", GLOBAL, "effusion", []),
        ("SEGMENT   THE EDEMA in both lung bases", BASIC, "edema", ["right lung base", "left lung base"]),
        ("Mask pneumonia: the bases of both lungs", BASIC, "pneumonia", ["right lung base", "left lung base"]),
        ("Show the hazy patch in the left apex, please: what is", None, None, None),
        ("Highlight the opacities of the left lung apex and predict the disease class", INFERENCE, "opacity",
         ["left apical zone lung"]),
        ("Draw around the enlarged heart.", GLOBAL, "cardiomegaly", []),
        ("Trace the consolidation in the left middle zone and the right upper lung zone.", BASIC, "consolidation",
         ["right upper zone lung", "left mid zone lung"]),
    ],
)  # fmt: skip
def test_a_wording_is_read(text, kind, lesion, places):
    if kind is None:
        with pytest.raises(wording_checks.UnusableWording):
            wording_checks.parse_wording(text)
        return
    assert wording_checks.parse_wording(text) == Instruction(kind, lesion, tuple(places))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Segment the finding in the right lung base.", "names no lesion type"),
        ("Segment the edema or the effusion in the right lung base.", "names more than one lesion type"),
        ("Segment the opacity in the right lung base, such as pneumonia, and predict its type.", "names more than one"),
        ("The edema in the right lung base.", "asks for no mask"),
        ("Segment the edema in the right and left lung bases.", "contains a word that changes the meaning"),
        ("Segment the edema in the right lower lobe.", "contains a word that changes the meaning"),
        ("Segment the edema in the right lung base but not the effusion.", "names more than one"),
        ("Do not segment the edema in the right lung base.", "contains a word that changes the meaning"),
        ("Don’t mark the edema in the right lung base.", "contains a word that changes the meaning"),
        ("Segment the edema in the right lung base, if there is any.", "contains a word that changes the meaning"),
        ("Segment the edema in the right lung base and the mediastinum.", "contains a word that changes the meaning"),
        ("Segment the possible edema in the right lung base.", "contains a word that changes the meaning"),
        ("Segment the edema in the lungs.", "contains a word that changes the meaning"),
        ("Segment the pneumothorax and the edema in the right lung base.", "contains a word that changes the meaning"),
        (
            "Segment the edema in the right lung base and predict its type.",
            "asks for a type, but not of an opacity with a location",
        ),
        ("Segment the opacity and predict its type.", "asks for a type, but not of an opacity with a location"),
        ("Segment the cardiomegaly in the right lung.", "names a location of cardiomegaly"),
        ("Segment the edema in the right lung base. [SEG]", "contains a character that is not allowed"),
        ("Segment the edema <image> in the right lung base.", "contains a character that is not allowed"),
        ("Segment the edema\nin the right lung base.", "contains a character that is not allowed"),
        ("Segment the edema in the right lung base." + " please" * 80, "is longer than any instruction"),
    ],
)
def test_what_is_not_understood_is_refused(text, why):
    with pytest.raises(wording_checks.UnusableWording, match=f"^{why}"):
        wording_checks.parse_wording(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Outline the edema in the left lung base.", "names other locations"),
        ("Outline the edema in the right lung base and the right lung.", "names other locations"),
        ("Outline the effusion in the right lung base.", "names another lesion type"),
        ("Outline the edema.", "is another type of instruction"),
        ("Outline the edema in the base of the right lung.", None),
    ],
)
def test_a_wording_must_mean_what_its_instruction_means(text, why):
    assert wording_checks.find_meaning_problem(text, EDEMA) == why


def test_every_plain_instruction_is_read_as_what_it_means():
    for meant in meanings():
        assert parse_instruction(plain(meant)) == meant
        assert wording_checks.parse_wording(plain(meant)) == meant


def test_no_name_means_two_things():
    told = yaml.safe_load((ROOT / "resources/paraphrase/vocabulary.yaml").read_text(encoding="utf-8"))
    names = [name for names in told["places"].values() for name in names]
    names += [name for lesion in LESION_TYPES for name in lesion.synonyms]
    assert len(names) == len(set(names))
    for lesion in LESIONS:
        for name in wording_checks.list_lesion_names(lesion):
            assert wording_checks.parse_wording(f"Segment the {name}.") == Instruction(GLOBAL, lesion, ()), name
    for place in VALID_LOCATIONS:
        for name in wording_checks.list_place_names(place):
            assert wording_checks.parse_wording(f"Segment the edema in the {name}.") == Instruction(
                BASIC, "edema", (place,)
            ), name


REASONS = {
    "is longer than any instruction", "contains a character that is not allowed", "names more than one lesion type",
    "names no lesion type", "contains a word that changes the meaning", "asks for no mask",
    "names a location of cardiomegaly", "asks for a type, but not of an opacity with a location",
}  # fmt: skip
PIECES = st.sampled_from(
    ["Segment", "the", "edema", "heart", "enlarged heart", "in", "right", "left lung", "both", "no", "type", "opacity"]
)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=9).map(" ".join)))
def test_any_text_is_read_or_refused_for_a_reason_of_ours(text):
    try:
        found = wording_checks.parse_wording(text)
    except wording_checks.UnusableWording as reason:
        found = None
        why = str(reason)
    assert found is not None or why in REASONS  # no word of the text, which may go to a log
    if found is not None:
        assert wording_checks.parse_wording(plain(found)) == found


# ---- the engine rules ------------------------------------------------------------------------------------------------


def test_every_wording_of_every_instruction_means_it_and_no_other():
    """All 7,168 instructions of Table 2 × 9: read back to the same meaning, none twice, none of two instructions."""
    made = engine.load_engine(RULES, {})
    tasks = [task(meant) for meant in meanings()]
    assert len(tasks) == 7 + 6 * 1023 + 1023
    seen: dict[str, str] = {one.text: one.text for one in tasks}
    for persona in PERSONAS:
        for one, found in zip(tasks, made.reword(tasks, persona), strict=True):
            assert len(found.wordings) == 3
            for text in found.wordings:
                assert text not in seen, f"{text!r} of {one.text!r} and {seen[text]!r}"
                seen[text] = one.text
                assert wording_checks.parse_wording(text) == one.meaning, text
    assert len(seen) == len(tasks) * 10


def test_the_personas_speak_as_they_are():
    meant = Instruction(INFERENCE, OPACITY, ("right apical zone lung", "left lung base"))
    assert [rules.list_wordings(meant, persona)[0] for persona in PERSONAS] == [
        "Delineate the pulmonary opacity in the right lung apex and the left lung base and give its most likely "
        "diagnosis.",
        "Can you show me the cloudy area in the very top of the right lung and the bottom of the left lung and tell me "
        "what it might be?",
        "Generate a binary mask for the opacity in the right apical zone lung and the left lung base and predict its "
        "type.",
    ]
    assert rules.list_wordings(Instruction(GLOBAL, "effusion", ()), "layperson") == [
        "Can you show me the fluid around the lung on this X-ray?",
        "Please mark where you see the fluid around the lung.",
        "On this X-ray, color in all of the fluid around the lung.",
    ]


def test_fewer_personas_and_wordings_are_the_first_of_all():
    few = engine.load_engine(replace(RULES, personas=["layperson"], per_persona=2), {})
    assert few.reword([task(EDEMA)], "layperson")[0].wordings == tuple(rules.list_wordings(EDEMA, "layperson")[:2])


def test_more_wordings_than_there_are_is_one_sentence():
    with pytest.raises(ValueError, match=r"^per_persona is 4, but the engine rules has 3 wordings.*vllm$"):
        replace(RULES, per_persona=4)
    with pytest.raises(
        UserError, match=r"^paraphrase\.engine is 'luck', which does not exist: choose one of rules, vllm$"
    ):
        engine.load_engine(replace(RULES, engine="luck"), {})


# ---- what wordings must be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wordings", "why"),
    [
        (["Outline the edema in the right lung base.", "Outline the oedema in the right lung base."], None),
        (["Outline the edema in the right lung base.", "outline THE edema, in the right lung base!"],
         "wording 2: comes twice"),
        (["Segment the edema in the right lung base!"], "wording 1: comes twice"),  # the instruction itself
        (["Mark the edema at the right base."], "wording 1: comes twice"),  # another persona's
        (["Mark the edema in the right lung base.", "Mark the edema."], "wording 2: is another type of instruction"),
        ([], None),
    ],
)  # fmt: skip
def test_wordings_are_of_the_meaning_and_none_comes_twice(wordings, why):
    assert find_problem(wordings, task(EDEMA, "Mark the edema at the right base")) == why


# ---- the stage -------------------------------------------------------------------------------------------------------


def collected(folder, **splits: list[str]) -> list[dict]:
    """Instructions of files of pairs, a file a split, collected into the folder."""
    for name, texts in splits.items():
        lines = [{"instruction": text, "pair_id": f"{name}{number}"} for number, text in enumerate(texts)]
        write_lines(folder / f"{name}.jsonl", lines)
    paths = [str(folder / f"{name}.jsonl") for name in splits]
    make_paraphrases.run_instructions(lines=paths, output=str(folder / "instructions.jsonl"))
    return list(read_lines(folder / "instructions.jsonl"))


def made(folder, options: ParaphraseOptions = RULES, execution: dict | None = None) -> list[dict]:
    make_paraphrases.run(
        instructions=str(folder / "instructions.jsonl"), wordings=str(folder / "wordings.jsonl"),
        counts_table=str(folder / "counts.tsv"), options=options, execution=execution or {},
    )  # fmt: skip
    return list(read_lines(folder / "wordings.jsonl"))


TRAIN = ["Segment the edema.", "Segment the effusion in the left lung base.", "Segment the edema."]
TEST = ["Segment the effusion in the left lung base.", "Where is the swelling?"]


def test_each_distinct_instruction_is_collected_once(tmp_path):
    assert collected(tmp_path, train=TRAIN, test=TEST) == [
        {"instruction": "Segment the edema.", "type": "global", "word": "edema", "location": []},
        {"instruction": "Segment the effusion in the left lung base.", "type": "basic", "word": "effusion",
         "location": ["left lung base"]},
        {"instruction": "Where is the swelling?", "type": None, "word": None, "location": None},
    ]  # fmt: skip
    before = (tmp_path / "instructions.jsonl").read_bytes()
    collected(tmp_path, test=TRAIN, train=TEST * 3)
    assert (tmp_path / "instructions.jsonl").read_bytes() == before  # more pairs ask nothing anew


def test_a_line_for_each_instruction_and_persona_and_counts_that_add_up(tmp_path):
    collected(tmp_path, train=TRAIN, test=TEST)
    lines = made(tmp_path)
    assert [(line["instruction"], line["persona"]) for line in lines] == [
        (text, persona) for text in sorted({*TRAIN, *TEST}) for persona in PERSONAS
    ]
    assert lines[4]["wordings"] == rules.list_wordings(Instruction(BASIC, "effusion", ("left lung base",)), "layperson")
    assert {line["made_by"] for line in lines} == {"rules"}
    assert [(line["wordings"], line["problem"]) for line in lines[6:]] == [
        ([], make_paraphrases.NOT_AN_INSTRUCTION)
    ] * 3
    table = read_table(tmp_path / "counts.tsv")
    assert table.filter(table["persona"] == "layperson").rows() == [
        ("layperson", "basic", 1, 1, 0, ""), ("layperson", "global", 1, 1, 0, ""),
        ("layperson", "unknown", 1, 0, 1, "not an instruction of Table 2: 1"),
    ]  # fmt: skip
    assert table["instructions"].sum() == len(lines) == (table["reworded"] + table["plain_only"]).sum()


def test_a_dataset_without_a_pair_has_no_wording_and_asks_no_model(tmp_path):
    collected(tmp_path, train=[])
    assert made(tmp_path, MODEL, {"server": "http://127.0.0.1:9/v1"} | EXECUTION) == []
    assert read_table(tmp_path / "counts.tsv").is_empty()


def test_what_an_engine_says_wrongly_is_no_wording(tmp_path, monkeypatch):
    """The stage reads back what any engine gives, its own too."""
    collected(tmp_path, train=TRAIN)
    told = rules.load_resource(rules.RESOURCE_FILES[0])
    wrong = told["layperson"] | {"global": ["Show the {lesion} at the left base."]}
    monkeypatch.setattr(rules, "load_resource", lambda _: told | {"layperson": wrong})
    lines = made(tmp_path, replace(RULES, per_persona=1))
    assert [(line["persona"], line["problem"], line["raw"]) for line in lines if line["problem"]] == [
        ("layperson", "wording 1: is another type of instruction",
         "Show the fluid inside the lung tissue at the left base.")
    ]  # fmt: skip


# ---- the engine vllm -------------------------------------------------------------------------------------------------

EXECUTION = {"gpus": 0, "gpu_memory": 0.9, "requests": 4, "timeout_s": 30}
MODEL = ParaphraseOptions(
    engine="vllm", personas=list(PERSONAS),
    language_model={
        "key": "paraphrase.llm", "transport": "server", "model": language_model.MODEL, "revision": "", "context": 16384,
        "max_tokens": 1024, "dtype": "auto", "temperature": 0.0, "retries": 2, "retry_temperature": 0.5, "seed": 7,
    },
)  # fmt: skip


def test_the_prompt_holds_persona_names_and_number():
    asked = vllm.make_question(task(EDEMA), "layperson", 3)
    system, user = (message["content"] for message in asked.messages)
    assert "use no negation" in system
    assert user.splitlines() == [
        "Persona: a layperson without medical training, in everyday language",
        "Original: Segment the edema in the right lung base.",
        "Names of the lesion: edema / oedema / pulmonary edema / pulmonary oedema / lung edema / lung oedema / "
        "fluid inside the lung tissue / fluid in the lung tissue",
        "Names of the places: right lung base / right base / base of the right lung / bottom of the right lung",
        "Number of wordings: 3",
    ]
    told = asked.schema["properties"]["wordings"]
    assert (told["minItems"], told["maxItems"]) == (3, 3)
    anywhere = vllm.make_question(task(Instruction(GLOBAL, "edema", ())), "layperson", 3).messages[1]["content"]
    assert "Names of the places: (no place)" in anywhere


def test_a_served_model_words_as_the_rules_do(tmp_path):
    collected(tmp_path, train=TRAIN, test=TEST)
    expected = made(tmp_path)
    with language_model.serving() as (url, seen):
        lines = made(tmp_path, MODEL, EXECUTION | {"server": url})
    assert [line | {"made_by": "rules"} for line in lines] == expected
    assert {line["made_by"] for line in lines} == {language_model.MODEL}
    assert len(seen) == 2 * 3  # each known instruction once for each persona
    assert {request["response_format"]["json_schema"]["strict"] for request in seen} == {True}


STAND_IN = replace(
    MODEL, language_model=MODEL.language_model | {"transport": "stand_in", "model": "test_paraphrase:stubborn"}
)


class Stubborn:
    """A stand-in that answers the layperson with the next of these texts, the last one for ever."""

    def __init__(self, *texts: str):
        self.texts, self.asked = list(texts), 0

    def __call__(self, messages: list[dict], schema: dict) -> str:
        if "a layperson" not in messages[1]["content"]:
            return language_model.answer(messages, schema)
        self.asked += 1
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


stubborn = Stubborn("")
"""What STAND_IN asks; a test puts its own here."""


def said(*wordings: str) -> str:
    return json.dumps({"wordings": list(wordings)})


GOOD = said("Mark the edema.", "Show the lung edema.", "Outline any pulmonary edema.")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("Sure! Here they are:", "not JSON"),
        (said("Mark the edema.", "Show the edema."), "wordings: minItems"),
        (said("Mark the edema.", "Show the edema.", "Show the effusion."), "wording 3: names another lesion type"),
        (said("Mark the edema.", "Mark the edema.", "Show the edema."), "wording 2: comes twice"),
        (said("Segment the edema", "Mark the edema.", "Show the edema."), "wording 1: comes twice"),
        (
            said("Mark the edema at the left base.", "Mark the edema.", "Show the edema."),
            "wording 1: is another type of",
        ),
        (said("Mark the edema.", "Mark the edema, not the effusion.", "Show the edema."), "wording 2: names more than"),
        (said("Mark the edema.", "Show the edema. [SEG]", "Find the edema."), "wording 2: contains a character"),
        (said("Mark the edema.", "Show the edema.", "x" * 401), "wordings.2: maxLength"),
    ],
)
def test_a_wrong_answer_is_asked_again_then_set_apart(tmp_path, bad, problem, monkeypatch):
    collected(tmp_path, train=["Segment the edema."])
    execution = EXECUTION | {"server": ""}
    monkeypatch.setattr("test_paraphrase.stubborn", model := Stubborn(bad, GOOD))
    expert, line, developer = made(tmp_path, STAND_IN, execution)
    assert (model.asked, line["attempts"]) == (2, 2)
    assert (line["wordings"], line["problem"], line["raw"]) == (json.loads(GOOD)["wordings"], None, "")
    monkeypatch.setattr("test_paraphrase.stubborn", model := Stubborn(bad))
    again = made(tmp_path, STAND_IN, execution)
    assert again[::2] == [expert, developer]  # one persona's answer never touches another's
    assert (model.asked, again[1]["attempts"]) == (3, 3)
    assert (again[1]["wordings"], again[1]["raw"]) == ([], bad)
    assert again[1]["problem"].startswith(problem)


def test_two_personas_never_share_a_wording(tmp_path, monkeypatch):
    """What an earlier persona says is taken: the later one is asked again."""
    collected(tmp_path, train=["Segment the edema."])
    expert = rules.list_wordings(Instruction(GLOBAL, "edema", ()), "medical_expert")
    monkeypatch.setattr(
        "test_paraphrase.stubborn", Stubborn(said("Mark the edema.", expert[0], "Show the edema."), GOOD)
    )
    lines = made(tmp_path, STAND_IN, EXECUTION | {"server": ""})
    assert lines[0]["wordings"] == expert
    assert (lines[1]["attempts"], lines[1]["wordings"]) == (2, json.loads(GOOD)["wordings"])


def test_a_model_that_gives_nothing_of_use_ends_the_job(tmp_path, monkeypatch):
    collected(tmp_path, train=["Segment the edema."])
    words = r"^paraphrase: none of 1 instructions could be reworded, mostly because of 'not JSON': try another model"
    monkeypatch.setattr("test_paraphrase.stubborn", lambda messages, schema: "no")
    with pytest.raises(UserError, match=words):
        made(tmp_path, STAND_IN, EXECUTION | {"server": ""})
    assert [line["raw"] for line in read_lines(tmp_path / "wordings.jsonl")] == ["no"] * 3


@pytest.mark.slow
def test_a_server_that_is_not_there_is_told_with_its_key(tmp_path):
    collected(tmp_path, train=["Segment the edema."])
    words = r"^llm\.server: http://127\.0\.0\.1:9/v1 does not answer"
    with pytest.raises(UserError, match=words):
        made(tmp_path, MODEL, EXECUTION | {"server": "http://127.0.0.1:9/v1", "timeout_s": 1})

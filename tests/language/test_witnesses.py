"""What a report may deny: the closed grammar, neighbouring terms, forms, corrections, and the test of the engine."""

import pytest

from cxr.base.errors import UserError
from cxr.language.reports import corrections, forms, read_reports, reading, self_test
from cxr.language.reports.rules.lexicon import load_lexicon
from cxr.language.reports.witnesses import load_second_reader
from cxr.workflow import params, settings

OPTIONS = read_reports.ReportsOptions(**params.stage_options(settings.Settings())["reports"] | {"engine": "rules"})
READER = read_reports.make_reader(OPTIONS)
SECOND = load_second_reader()


def row_of(text: str, impression: str | None = None) -> dict:
    return {"study_id": "s1", "subject_id": "p1", "findings": text, "impression": impression}


def witnesses_of(text: str, impression: str | None = None) -> dict[str, dict]:
    line = read_reports.study_line(row_of(text, impression), READER)
    assert isinstance(line, dict), line
    return line["witnesses"]


def denied(text: str) -> set[str]:
    """Return the lesion types that a sentence denies by the grammar alone."""
    words = [word for word, _, _ in load_lexicon().tokens(text)]
    return {item.lesion for item in SECOND.find_denials(words)} - {None}


@pytest.mark.parametrize(
    ("text", "lesions"),
    [
        ("No pleural effusion.", {"effusion"}),
        ("There is no focal consolidation, pleural effusion or pneumothorax.", {"consolidation", "effusion"}),
        ("No radiographic evidence of pneumonia.", {"pneumonia"}),
        ("Lungs are free of opacities.", {"opacity"}),
        ("No airspace opacity to suggest pneumonia.", {"opacity", "pneumonia"}),
        ("Effusion is not seen.", {"effusion"}),
        ("The edema has completely resolved.", {"edema"}),
        ("The heart is not enlarged.", {"cardiomegaly"}),
        ("No effusion on either side.", {"effusion"}),
        ("No edema, mild atelectasis.", {"edema"}),
        ("No edema and mild atelectasis.", {"edema"}),
        ("There is no edema, but a moderate left effusion.", {"edema"}),
        # a degree is denied, or the negation is bounded
        ("No large effusion.", set()),
        ("No significant edema.", set()),
        ("No definite edema.", {"edema"}),
        ("No new consolidation.", set()),
        ("No change of the effusion.", set()),
        ("No less effusion than before.", set()),
        # doubt, comparison, limits
        ("Cannot say that there is no consolidation.", set()),
        ("No effusion can be excluded.", set()),
        ("The prior film showed no effusion.", set()),
        ("The edema has not completely resolved.", set()),
        # words left over: a dictation without punctuation
        ("No evidence of pneumonia pneumothorax or pleural effusion Mild pulmonary edema Cardiomegaly", set()),
        ("No effusion or something unknown.", set()),
        # a place behind a comma may begin a new statement
        ("No pneumothorax, left effusion.", set()),
        ("Since yesterday the edema has gone from severe to mild.", set()),
        ("L eff decr, no PTX.", set()),
    ],
)
def test_the_grammar_understands_whole_clauses_alone(text, lesions):
    assert denied(text) == lesions


def test_an_explicit_denial_is_quoted_with_its_section():
    witness = witnesses_of("Cardiomegaly. No pleural effusion.", "No effusion. No edema.")
    assert witness["effusion"]["quotes"] == [(0, "No pleural effusion."), (1, "No effusion.")]
    assert witness["edema"]["quotes"] == []  # the section itself does not deny it
    assert witness["cardiomegaly"]["quotes"] == []


@pytest.mark.parametrize(
    ("text", "impression"),
    [
        ("No effusion. No large effusion.", None),
        ("No effusion.", "No new effusion."),
        ("FINDINGS: No effusion.\nCOMMENT: small effusion on the lateral view?", None),
    ],
)
def test_every_other_mention_must_be_a_denial(text, impression):
    assert witnesses_of(text, impression)["effusion"]["quotes"] == []


@pytest.mark.parametrize(
    ("text", "lesion", "silent"),
    [
        ("Cardiomegaly.", "effusion", ["right", "left"]),
        ("Blunted left costophrenic angle.", "effusion", ["right"]),
        ("Blunting of the costophrenic angles.", "effusion", []),
        ("The costophrenic angles are sharp.", "effusion", ["right", "left"]),
        ("Right pneumonectomy, complete white-out.", "effusion", ["left"]),
        ("Consolidation in the right lower lobe.", "pneumonia", ["left"]),
        ("ARDS.", "pneumonia", []),
        ("Low lung volumes.", "atelectasis", []),
        ("No large effusion.", "atelectasis", ["right", "left"]),
        ("Heart size is normal.", "cardiomegaly", ["right", "left"]),
        ("Heart size not assessed.", "cardiomegaly", []),
        ("The ETT is 3 cm above the carina.", "cardiomegaly", ["right", "left"]),
    ],
)
def test_neighbouring_terms_break_the_silence_of_their_side(text, lesion, silent):
    assert witnesses_of(text)[lesion]["silent"] == silent


@pytest.mark.parametrize(
    ("text", "lesion", "elsewhere"),
    [
        ("Opacity in the right lung base.", "opacity", True),
        ("Diffuse opacities, most marked at the left base.", "opacity", False),
        ("Bilateral opacities, worse in the RLL.", "opacity", False),
        ("Edema in the right lung base.", "edema", False),
        ("Opacity at the left base. Pulmonary edema.", "opacity", False),
    ],
)
def test_an_unclear_reach_leaves_no_other_place(text, lesion, elsewhere):
    assert witnesses_of(text)[lesion]["elsewhere"] is elsewhere


# ---- forms -----------------------------------------------------------------------------------------------------------


def section_of(text: str):
    return reading.read_section(row_of(text), READER.options)


@pytest.mark.parametrize(
    ("text", "sentences", "kind"),
    [
        ("Consolidation: No\nPleural effusion: Yes", ["No consolidation.", "Pleural effusion."], forms.LINES),
        ("Consolidation\tNo\nEffusion\tYes", ["No consolidation.", "Effusion."], forms.LINES),
        ("Consolidation (no)\nEffusion (yes)", ["No consolidation.", "Effusion."], forms.LINES),
        ("Consolidation=No\nEffusion=Yes", ["No consolidation.", "Effusion."], forms.LINES),
        ("Consolidation No\nEffusion Yes", ["No consolidation.", "Effusion."], forms.LINES),
        ("Effusion - nil\nEdema - present", ["No effusion.", "Edema."], forms.LINES),
        ("Heart size: normal; edema: -; effusion: +", ["Heart size: normal.", "No edema.", "Effusion."], forms.LINES),
        ("Effusion?: Yes - small L\nEdema?: No", ["Effusion, small l.", "No edema."], forms.LINES),
        ("Effusion: no, consolidation: yes", ["No effusion.", "Consolidation."], forms.LINES),
        ("Effusion: Present, small, left\nEdema: False", ["Effusion, small, left.", "No edema."], forms.LINES),
        ("[x] Effusion, right\n[ ] Edema\n( ) Pneumonia", ["Effusion, right."], forms.TICKS),
        ("☒ Effusion\n☐ Edema", ["Effusion."], forms.TICKS),
        ("Effusion [x]\nEdema [ ]", ["Effusion."], forms.TICKS),
        ("Effusion: ( ) yes (x) no\nEdema: (x) yes ( ) no", ["No effusion.", "Edema."], forms.TICKS),
        ("X\tRight\tLeft\nEffusion\tNo\tYes (small)", ["No right effusion.", "Left effusion, small."], forms.TABLE),
        ("Organ | Today | Previous\nHeart | normal | enlarged", ["Heart: normal."], forms.TABLE),
        ('{"pleural_effusion": true, "edema": false}', ["Pleural effusion.", "No edema."], forms.JSON),
        ("Effusion.\\nNo edema.\\nHeart normal.", ["Effusion.", "No edema.", "Heart normal."], forms.ESCAPED),
        ("no effusion period heart normal period", ["no effusion.", "heart normal."], forms.DICTATED),
        ("Effusion: N/A\nEdema?: ?", ["Effusion cannot be assessed.", "Edema cannot be assessed."], forms.LINES),
        ("Pneumonia .... Possible\nEdema .... Unlikely", ["Pneumonia is possible.", "Edema is unlikely."], forms.LINES),
        ("Effusion: small, left\nEdema: mild", ["Effusion, small, left.", "Edema, mild."], forms.LINES),
        ("Q: Effusion? A: N\nQ: Edema? A: Y", ["No effusion.", "Edema."], forms.LINES),
        ("Effusion?\nNo\nEdema?\nYes", ["No effusion.", "Edema."], forms.LINES),
        ("Present: effusion\nAbsent: edema, consolidation", ["Effusion.", "No edema, no consolidation."], forms.LINES),
        ("[Y] Effusion\nN Edema", ["Effusion.", "No edema."], forms.LINES),
        ("Is there effusion? No\nEdema (Y/N): Y", ["No effusion.", "Edema."], forms.LINES),
        ("Effusion (Y/N):\nOpacity: yes / no\nEdema (Y/N): Y", ["Edema."], forms.LINES),
        ("Edema 2+\nEffusion: 0", ["Edema.", "No effusion."], forms.LINES),
        ("effusion;1\nedema;0", ["Effusion.", "No edema."], forms.LINES),
        ("<effusion>yes</effusion><edema>no</edema>", ["Effusion.", "No edema."], forms.LINES),
        ("cardiomegaly=0|effusion=1", ["No cardiomegaly.", "Effusion."], forms.LINES),
        ("Effusion: none. Edema: none. Line in place.", ["No effusion.", "No edema.", "Line in place."], forms.LINES),
        ("Finding | Yes | No\nEffusion | x | \nEdema | | x", ["Effusion.", "No edema."], forms.TABLE),
        ("Finding | Present | Side\nEffusion | yes | left\nEdema | no", ["Effusion, left.", "No edema."], forms.TABLE),
        ("Heart (x) normal\nEffusion: [x] left [x] right", ["Heart normal.", "Effusion, left, right."], forms.TICKS),
        ("Lungs are clear.\nNo effusion.", ["Lungs are clear.", "No effusion."], forms.PROSE),
    ],
)  # fmt: skip
def test_a_form_becomes_sentences(text, sentences, kind):
    section = section_of(text)
    assert section.sentences == sentences
    assert kind in section.written


@pytest.mark.parametrize(
    "text",
    [
        "Effusion: see comment\nEdema: no",
        "Effusion: (x) yes (x) no",
        "          Yes   No\nEffusion        X\nEdema     X",
        "Effusion   [ ]   [x]\nEdema   [x]   [ ]",
        "Effusion: right [ ] left [x]\nEdema: no",
        "Effusion 2/3\nEdema 0/3",
        "Effusion: 2",
        "Effusion : 0 / 1 / 2 / 3 -> 2",
        "Effusion Yes No\nEdema Yes No",
        "Grading: effusion R 2+ L 0, edema 1+, consolidation 0",
        "Finding          R    L\nEffusion         +    -\nConsolidation    -    +",
        "Finding | A | B\nEffusion | x |",
        "Effusion:\nEdema: no",
        '{"effusion": true,',
    ],
)
def test_a_form_that_is_not_wholly_read_is_no_report(text):
    assert section_of(text)[0] == "unread_form"


def test_forms_of_others_are_read(shared):
    """Reports of public bug trackers; their READMEs say what each holds."""
    folder = shared / "fixtures/public_reports"
    presence = {}
    for path in sorted(folder.glob("r[1-4]_*/report.txt")):
        line = read_reports.study_line(row_of(path.read_text(encoding="utf-8")), READER)
        presence[path.parent.name[:2]] = {(item["lesion_type"], item["presence"]) for item in line["tuples"]}
    assert presence == {
        "r1": {("effusion", "positive"), ("consolidation", "negative"), ("atelectasis", "negative")},
        "r2": {("effusion", "positive")},
        "r3": {
            ("consolidation", "negative"), ("effusion", "positive"), ("edema", "negative"), ("atelectasis", "positive"),
        },
        "r4": {("effusion", "positive"), ("consolidation", "positive")},
    }  # fmt: skip


# ---- corrections, foreign texts, the self-test -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "There is a right basilar opacity. ADDENDUM: The above opacity is in the LEFT base, not the right.",
        "Right lower lobe pneumonia. Correction: should read left lower lobe",
        "FINDINGS: No pleural effusion.\nADDENDUM: A tiny right effusion is present.",
        "FINDINGS: Right effusion.\nADDENDUM: Left effusion.",
    ],
)
def test_a_correction_that_is_not_carried_out_excludes_the_report(text):
    line = read_reports.study_line(row_of(text), READER)
    assert line[0] == "corrected_report"


def test_an_addendum_that_adds_is_read():
    assert "effusion" in witnesses_of("FINDINGS: Small left effusion.\nADDENDUM: No pneumothorax. Discussed by phone.")


def test_quoted_and_bracketed_corrections_are_carried_out():
    text = 'There is now pleural effusion. "now pleural effusion" should read "no pleural effusion".'
    assert corrections.apply_corrections(text) == "There is no pleural effusion."
    assert corrections.apply_corrections("Left (not right) effusion.") == "Left effusion."


@pytest.mark.parametrize("text", ["Nessuna pneumonia. Cardiomegalia.", "Edema pulmonar e cardiomegalia"])
def test_short_texts_of_shared_words_are_foreign(text):
    assert read_reports.study_line(row_of(text), READER)[0] == "not_english"


def test_the_engine_passes_its_test_and_a_changed_one_fails():
    assert len(self_test.read_cases()) == 40
    self_test.check_engine(READER.structures["rules"])

    def without_negation(sentences: list[str]) -> list[dict]:
        return [item | {"presence": "positive"} for item in READER.structures["rules"](sentences)]

    with pytest.raises(
        UserError, match=r"reads \d+ of 40 known sentences wrongly: in 'No pleural effusion\.' effusion"
    ):
        self_test.check_engine(without_negation)

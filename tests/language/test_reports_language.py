"""Reports in other languages are recognized, even short ones, and English ones are accepted."""

import json

import pytest

from cxr.language.reports import language, sentences, vocabulary
from cxr.language.reports.read_reports import NOTHING
from report_outcomes import outcomes

VOCABULARY = vocabulary.load_vocabulary()
LANGUAGES = language.load_languages(VOCABULARY)
SUBSTANCE = vocabulary.load_substance()
FOREIGN = {
    "Spanish": ["Sin edema pulmonar.", "No hay derrame.", "Sin cardiomegalia.", "Neumonia basal derecha.",
                "Corazón de tamaño normal.", "SIN DERRAME PLEURAL",
                "Infiltrado en base derecha, no se descarta neumonía."],
    "French": ["Pas d'épanchement pleural.", "Pas d'anomalie.", "Poumons clairs.", "Opacité basale gauche.",
               "Coeur de taille normale.", "PAS D'EPANCHEMENT"],
    "German": ["Kein Erguss.", "Keine Stauung.", "Kein Pneumothorax.", "Pneumonie rechts.", "Pleuraerguss links.",
               "Herz normal groß.", "Kardiomegalie.", "Keine Pleuraerguesse, Herz nicht vergroessert."],
    "Dutch": ["Geen pleuravocht.", "Geen infiltraat.", "Hart niet vergroot.", "Geen afwijkingen."],
    "Italian": ["Non versamento pleurico.", "Nessun versamento.", "Senza evidenza di edema polmonare.", "Nella norma."],
    "Portuguese": ["Sem derrame pleural.", "Sem alterações.", "Coração normal.", "O coracao tem dimensoes normais."],
    "Swedish": ["Ingen pleuravätska."],
    "Polish": ["Brak płynu w jamach opłucnowych."],
    "Finnish": ["Ei nestettä."],
    "Cyrillic script": ["Плевральный выпот справа, без пневмоторакса."],
    "Cjk script": ["胸部正常"],
    "Arabic script": ["لا يوجد انصباب جنبي"],
    "unknown": ["Mellkasi felvétel: tüdőkben friss beszűrődés nem látszik, szív nem nagyobb, rekeszek szabadok."],
}  # fmt: skip
ENGLISH = [
    "Normal.", "No pneumothorax.", "N.A.D.", "Bibas atx. No PNA. L eff.", "LLL PNA. R CHEST TUBE D/C'D.",
    "Discussed with Dr. van der Berg and Dr. de la Cruz by phone.", "Status post CABG in El Paso, Los Angeles.",
    "Line in situ, de novo opacity, cor pulmonale, pectus excavatum.", "Mild pulmonar edema.",
    "Smal efusion on teh left",
    "ETT 3 cm above carina. NGT in stomach.", "Moderate à la prior; naïve; Ménière's.", "As above.",
    "NO INFILTRATES. NO EFFUSIONS. HEART SIZE NORMAL.", "___ discussed with ___ on ___ at 10:05.", "XXXX XXXX.", "",
]  # fmt: skip


def told(text: str) -> str | None:
    return language.detect_foreign([text[a:b] for a, b in sentences.split_sentences(text)], LANGUAGES, VOCABULARY)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FOREIGN.items() for text in texts])
def test_other_languages_are_told(name, text):
    assert told(text) == name


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not(text):
    assert told(text) is None


@pytest.mark.parametrize("name", ["Spanish", "French", "German", "Dutch", "Italian", "Portuguese"])
def test_one_foreign_sentence_makes_a_section_foreign(name):
    """English findings with a denial in another language: read as English, the denial would be a finding."""
    long = max(FOREIGN[name], key=len)
    assert told(f"The heart is mildly enlarged. The lungs are clear. {long} No pneumothorax is seen.") == name


def test_no_false_alarm_on_given_english_texts_and_none_missed(shared):
    reports = [json.loads(line) for line in (shared / "fixtures/openi_reports.jsonl").open(encoding="utf-8")]
    assert len(reports) == 1868
    parts = ("findings", "impression", "indication", "comparison")
    assert [report["uid"] for report in reports for part in parts if told(report[part] or "")] == []
    texts = [json.loads(line) for line in (shared / "fixtures/clinical_reports.jsonl").open(encoding="utf-8")]
    assert [text["id"] for text in texts if (told(text["text"]) is None) != (text["language"] == "en")] == []


def test_given_sentences_are_english(shared):
    cases = [json.loads(line) for line in (shared / "fixtures/tuple_cases.jsonl").open(encoding="utf-8")]
    assert [case["id"] for case in cases if told(case["report"])] == []
    sections = [json.loads(line) for line in (shared / "fixtures/section_cases.jsonl").open(encoding="utf-8")]
    assert [case["id"] for case in sections if told(case["findings"] or case["impression"] or "")] == []


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("As above.", True), ("Report to follow.", True), ("Not interpreted. See separate report.", True),
        ("I have reviewed the images and agree with the report of the resident.", True), ("", True),
        ("Study cancelled, patient refused.", True), ("Chest radiograph not performed.", True),
        ("Normal.", False), ("No change.", False), ("Lungs clear. Agree with the preliminary report.", False),
        ("ETT in good position.", False), ("No report of the heart was given. The heart is normal.", False),
    ],
)  # fmt: skip
def test_what_says_nothing_of_the_chest(text, lacks):
    assert SUBSTANCE.lacks([text[a:b] for a, b in sentences.split_sentences(text)]) is lacks


def test_the_stage_gives_the_right_reasons(tmp_path):
    texts = [
        ("Sin edema pulmonar.", None), ("The lungs are clear.", "Kein Pleuraerguss."), ("Report pending.", None),
        ("AP and lateral views of the chest.", "Small left effusion."), ("Bibas atx w/ PNA.", None), ("Normal.", None),
    ]  # fmt: skip
    lines, reasons = outcomes(tmp_path, texts)
    assert reasons == {
        "0": ("not_english", "findings: Spanish"), "1": ("not_english", "impression: German"), "2": NOTHING,
    }  # fmt: skip
    assert (lines["3"]["section_name"], lines["3"]["section_text"]) == ("impression", "Small left effusion.")
    assert lines.keys() == {"3", "4", "5"}


def test_no_given_report_without_a_chest_is_read_and_none_with_one_is_lost(shared, tmp_path):
    path = shared / "fixtures/clinical_reports.jsonl"
    cases = [json.loads(line) for line in path.open(encoding="utf-8")]
    lines, reasons = outcomes(tmp_path, [(case["text"], None) for case in cases])
    kinds = {"non_english": "not_english", "no_report": "no_report"}
    expected = {str(n): kinds[case["category"]] for n, case in enumerate(cases) if case["category"] in kinds}
    assert {study: reason for study, (reason, _) in reasons.items()} == expected
    assert len(lines) == 200 - 15


def test_no_given_open_i_report_is_lost(shared, tmp_path):
    path = shared / "fixtures/openi_reports.jsonl"
    reports = [json.loads(line) for line in path.open(encoding="utf-8")]
    texts = [(report["findings"], report["impression"]) for report in reports]
    lines, reasons = outcomes(tmp_path, texts)
    assert (len(lines), reasons) == (1868, {})

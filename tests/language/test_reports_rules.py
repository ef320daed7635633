"""Reports: the rules engine's tuples of single sentences and sections."""

import sys
from pathlib import Path

import pytest

from cxr.base.vocabulary import LUNGS, ZONE_LABELS
from cxr.language.reports import engine, sentences
from cxr.language.reports.rules import lexicon as rules_lexicon
from cxr.language.reports.rules import statements

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import reports_accuracy as accuracy  # noqa: E402

STRUCTURE = engine.load_engine("rules", accuracy.EngineOptions())


def tuples_of(text: str) -> list[dict]:
    return accuracy.tuples_of(STRUCTURE, text)


# ---- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Stable heart. 2. No fluid.", ["Stable heart.", "No fluid."]),
        ("A 1.5 cm nodule. Read by Dr. Low at 3 p.m. today.", ["A 1.5 cm nodule.", "Read by Dr. Low at 3 p.m. today."]),
        ("Left lung is\n clear.. Right lung is not.", ["Left lung is\n clear..", "Right lung is not."]),
        ("Edema vs. pneumonia.Heart large", ["Edema vs. pneumonia.", "Heart large"]),
        ("First line\n\nSecond line", ["First line", "Second line"]),
        ("Wedging of T12. Fluid?", ["Wedging of T12.", "Fluid?"]),
        ("... !!! \n - \n", []),
    ],
)
def test_sentences(text, expected):
    assert [text[a:b] for a, b in sentences.split_sentences(text)] == expected


# ---- tuples of our own sentences -------------------------------------------------------------------------------------

BASES, APICES = ["right lung base", "left lung base"], ["right apical zone lung", "left apical zone lung"]
BOTH = list(LUNGS)
NO = "negative"


def finding(name, lesion="same", labels=None, *, presence="positive", hedge="definite", of=(), index=1, **rest):
    """The compared fields of a tuple: entity, type, sentence, presence, hedge, candidates, labels."""
    lesion = name if lesion == "same" else lesion
    expected = {"entity": name, "lesion_type": lesion, "sentence_index": index, "presence": presence, "hedge": hedge}
    expected |= {"candidates": list(of), **rest}
    return expected if labels is None else expected | {"labels": labels}


def effusion(labels=None, **rest):
    return finding("pleural effusion", "effusion", labels, **rest)


def pneumothorax(labels=None, **rest):
    return finding("pneumothorax", None, labels, **rest)


SENTENCES = [
    # denial runs through lists and ends where a new statement begins
    (
        "No pneumothorax, layering fluid or lobar consolidation.",
        [pneumothorax(presence=NO), effusion(presence=NO), finding("consolidation", presence=NO)],
    ),
    (
        "Without effusion, edema, or collapse.",
        [effusion(presence=NO), finding("edema", presence=NO), finding("atelectasis", presence=NO)],
    ),
    ("Negative for edema and for pneumothorax.", [finding("edema", presence=NO), pneumothorax(presence=NO)]),
    (
        "No large effusion, but minimal edema is present.",
        [effusion(presence=NO), finding("edema", labels=BOTH)],
    ),
    (
        "No pneumothorax, mild left basal collapse.",
        [pneumothorax(presence=NO), finding("atelectasis", labels=["left lung base"])],
    ),
    (
        "An effusion is present and pneumothorax is not seen.",
        [effusion(BASES), pneumothorax(presence=NO)],
    ),
    (
        "No consolidation and there is right basal atelectasis.",
        [finding("consolidation", presence=NO), finding("atelectasis", labels=["right lung base"])],
    ),
    (
        "No effusion and the cardiac silhouette is enlarged.",
        [effusion(presence=NO), finding("cardiomegaly")],
    ),
    ("Resolution of the edema with persistent right effusion.", [
        finding("edema", presence=NO), effusion(["right lung base"])
    ]),
    ("Left effusion is present, none on the right.", [
        effusion(["left lung base"]), effusion(["right lung base"], presence=NO)
    ]),
    ("The heart is not enlarged.", [finding("cardiomegaly", presence=NO)]),
    ("Consolidation: absent.", [finding("consolidation", presence=NO)]),
    ("No opacity to suggest pneumonia.", [finding("opacity", presence=NO), finding("pneumonia", presence=NO)]),
    # look-alikes of a denial
    ("There is no increase in the right effusion.", [effusion(["right lung base"])]),
    ("No interval change in the edema.", [finding("edema", labels=BOTH)]),
    ("Left effusion cannot be excluded.", [effusion(["left lung base"], hedge="weak", certainty="tentative")]),
    # hedges
    ("Question small right effusion.", [effusion(["right lung base"], hedge="weak")]),
    ("Probable pneumonia at the right base.", [finding("pneumonia", labels=["right lung base"], hedge="strong")]),
    ("Atelectasis or consolidation in the left lower lobe.", [
        finding("atelectasis", labels=["lung lower lobe left"], hedge="strong"),
        finding("consolidation", labels=["lung lower lobe left"], hedge="strong"),
    ]),
    ("New or enlarging left effusion.", [effusion(["left lung base"])]),
    # suggestion and suspicion are weak for a finding, and no doubt of a denial
    ("Findings suggest interstitial edema.", [finding("edema", labels=BOTH, hedge="weak")]),
    ("Small right effusion suspected.", [effusion(["right lung base"], hedge="weak")]),
    ("Nothing to suggest edema.", [finding("edema", presence=NO, certainty="definitive")]),
    ("No opacity suspicious for pneumonia.", [
        finding("opacity", presence=NO), finding("pneumonia", presence=NO, certainty="definitive")
    ]),
    # a hedge behind its finding, past a comma it means the nearest alone, along "or" all
    ("Edema is also possible.", [finding("edema", labels=BOTH, hedge="weak")]),
    ("Small pneumothorax can't be excluded.", [pneumothorax(hedge="weak")]),
    ("Right basal opacity, pneumonia not excluded.", [
        finding("opacity", labels=["right lung base"]), finding("pneumonia", hedge="weak")
    ]),
    ("The heart is large although edema or consolidation cannot be excluded.", [
        finding("cardiomegaly"), finding("edema", hedge="weak"), finding("consolidation", hedge="weak")
    ]),
    ("Consistent with mild edema.", [finding("edema", hedge="strong")]),
    ("No findings compatible with mild edema.", [finding("edema", presence=NO)]),
    ("Right basal consolidation, pneumonia in the appropriate clinical setting.", [
        finding("consolidation", labels=["right lung base"]), finding("pneumonia", hedge="weak")
    ]),
    ("Considerations would include edema.", [finding("edema", hedge="weak")]),
    ("Atelectasis is favored over pneumonia.", [
        finding("atelectasis", hedge="strong"), finding("pneumonia", hedge="weak")
    ]),
    ("Opacities favoring atelectasis over pneumonia.", [
        finding("opacity", of=["atelectasis"], predicted_hedge="strong"), finding("pneumonia", hedge="weak")
    ]),
    ("Small right effusion likely.", [effusion(["right lung base"], hedge="strong")]),
    ("Left base atelectasis possible.", [finding("atelectasis", labels=["left lung base"], hedge="weak")]),
    ("Opacity, less likely pneumonia.", [finding("opacity"), finding("pneumonia", hedge="weak")]),
    ("Opacity, likely atelectasis, pneumonia not excluded.", [
        finding("opacity", of=["atelectasis"], predicted_hedge="strong"), finding("pneumonia", hedge="weak")
    ]),
    ("Left base opacity in the proper clinical setting may represent pneumonia.", [
        finding("opacity", labels=["left lung base"], of=["pneumonia"], predicted_hedge="weak")
    ]),
    ("Left base opacity unlikely to represent pneumonia.", [
        finding("opacity", labels=["left lung base"]),
        finding("pneumonia", presence=NO, hedge="weak", certainty="tentative"),
    ]),
    ("Edema versus chronic change.", [finding("edema", hedge="strong")]),
    ("Edema is unlikely.", [finding("edema", presence=NO, hedge="weak", certainty="tentative")]),
    # change
    ("The previously noted right upper lobe opacity is unchanged.", [
        finding("opacity", labels=["lung upper lobe right"])
    ]),
    ("The edema has cleared.", [finding("edema", presence=NO)]),
    ("The left effusion is no longer visualized.", [effusion(presence=NO)]),
    ("Resolved left pneumothorax.", [pneumothorax(presence=NO)]),
    ("Improving edema.", [finding("edema", labels=BOTH)]),
    ("No new opacity.", [finding("opacity", presence=NO, denies=False)]),
    # places
    ("Right perihilar and left basal consolidation.", [
        finding("consolidation", labels=["right mid zone lung", "left lung base"])
    ]),
    ("LUL and RML opacities.", [finding("opacity", labels=["lung upper lobe left", "lung middle lobe right"])]),
    ("Opacities in the upper lobes.", [finding("opacity", labels=["lung upper lobe left", "lung upper lobe right"])]),
    ("Hazy opacity at both apices.", [finding("opacity", labels=APICES)]),
    ("Consolidation of the lingula.", [finding("consolidation", labels=["left mid zone lung"])]),
    ("Opacity in the mid right lung.", [finding("opacity", labels=["right mid zone lung"])]),
    ("Right greater than left basilar atelectasis.", [finding("atelectasis", labels=BASES)]),
    ("In the left apex, there is a consolidation.", [finding("consolidation", labels=["left apical zone lung"])]),
    ("Atelectasis and effusion at the left base.", [
        finding("atelectasis", labels=["left lung base"]), effusion(["left lung base"])
    ]),
    ("Patchy densities throughout both lungs.", [finding("density", "opacity", BOTH)]),
    # places that are the object of a verb
    ("Dense consolidation occupies the right mid lung.", [finding("consolidation", labels=["right mid zone lung"])]),
    ("Pneumonia involves the left upper lobe.", [finding("pneumonia", labels=["lung upper lobe left"])]),
    ("Opacities now fill both bases.", [finding("opacity", labels=BASES)]),
    # what lies beside a finding lies on its side, or in its place
    ("Elevated right hemidiaphragm with associated basilar atelectasis.", [
        finding("elevated hemidiaphragm", None), finding("atelectasis", labels=["right lung base"])
    ]),
    ("Left upper lobe mass. Surrounding consolidation.", [
        finding("mass", None, ["lung upper lobe left"]),
        finding("consolidation", labels=["lung upper lobe left"], index=2),
    ]),
    ("Left basal infiltrate with small effusion.", [
        finding("infiltrate", "opacity", ["left lung base"]), effusion(["left lung base"])
    ]),
    ("Right effusion with mild edema.", [effusion(["right lung base"]), finding("edema", labels=BOTH)]),
    ("Right lower lobe collapse.", [finding("atelectasis", labels=["lung lower lobe right"])]),
    ("Fluid in the left pleural space.", [effusion(["left lung base"])]),
    ("Left base consolidation, right base clear.", [finding("consolidation", labels=["left lung base"])]),
    ("Bilateral opacities, most pronounced in the left upper lobe.", [
        finding("opacity", labels=["right lung", "lung upper lobe left"])
    ]),
    ("Increased lung markings in the right base.", [
        finding("interstitial markings", None, ["right lung base"], related="opacity")
    ]),
    # effusions
    ("Bilateral effusions, larger on the right.", [effusion(BASES)]),
    ("Effusions.", [effusion(BASES, category="pleura", location=None)]),
    ("Small effusion on the left.", [effusion(["left lung base"], category="lung")]),
    ("Pericardial effusion.", [finding("pericardial effusion", None, [], category="heart", block=[])]),
    # retrocardiac: no zone label, but it blocks
    ("Retrocardiac consolidation.", [
        finding("consolidation", labels=[], category="lateral view location", block=["left lung", "left lung base"])
    ]),
    # beside a place of the other side it is a tuple of its own: one with labels would block nothing
    ("Right basilar and retrocardiac opacities.", [
        finding("opacity", labels=["right lung base"], block=[]),
        finding("opacity", labels=[], block=["left lung", "left lung base"]),
    ]),
    ("Left lower lobe retrocardiac opacity.", [finding("opacity", labels=["lung lower lobe left"], block=[])]),
    # inference: one tuple, the disease is its prediction
    ("Left retrocardiac opacity, probably atelectasis.", [
        finding("opacity", labels=["left lung base"], of=["atelectasis"], predicted_lesion_type="atelectasis",
                predicted_hedge="strong", certainty="tentative", block=[])
    ]),
    ("Opacity in the right lower lobe, pneumonia versus aspiration.", [
        finding("opacity", labels=["lung lower lobe right"], of=["pneumonia", "aspiration"], predicted_lesion_type=None,
                related="pneumonia")
    ]),
    ("Hazy opacities of both lungs may reflect fluid overload.", [
        finding("opacity", labels=BOTH, of=["CHF"], predicted_lesion_type="CHF", related="edema")
    ]),
    ("Opacities may reflect prominent interstitial markings.", [
        finding("opacity", labels=BOTH, of=["interstitial markings"], related=None)
    ]),
    ("Right base opacity is due to overlapping structures.", [
        finding("opacity", labels=["right lung base"], of=["overlap of structures"], certainty="definitive")
    ]),
    ("Linear opacities at the left base. These likely represent atelectasis.", [
        finding("opacity", labels=["left lung base"]),
        finding("atelectasis", labels=["left lung base"], hedge="strong", index=2),
    ]),
    ("New right lower lobe infiltrate suspicious for aspiration.", [
        finding("infiltrate", "opacity", ["lung lower lobe right"], of=["aspiration"], related="pneumonia")
    ]),
    ("Opacities most suggestive of edema.", [
        finding("opacity", labels=BOTH, of=["edema"], predicted_hedge="strong", certainty="tentative")
    ]),
    ("Pneumonia superimposed on mild edema is a consideration.", [
        finding("pneumonia", labels=BOTH, hedge="weak"), finding("edema", labels=BOTH, hedge="weak")
    ]),
    ("Pneumonia superimposed on possible edema.", [
        finding("pneumonia", labels=BOTH), finding("edema", labels=BOTH, hedge="weak")
    ]),
    ("Left basilar atelectasis in this region on old CT scans.", []),
    # neighbours of the seven
    ("Prominent interstitial markings may reflect vascular congestion.", [
        finding("interstitial markings", None, BOTH, of=["vascular congestion"], related=["opacity", "edema"])
    ]),
    ("Borderline cardiac size.", [
        finding("borderline heart size", "cardiomegaly", [], hedge="strong", related="cardiomegaly", category="heart")
    ]),
    ("Mild vascular congestion without frank edema.", [
        finding("vascular congestion", None, [], related="edema"), finding("edema", presence=NO)
    ]),
    ("Blunted left costophrenic angle.", [finding("blunting", None, ["left lung base"], related="effusion")]),
    ("Heart is moderately enlarged.", [finding("cardiomegaly", labels=[], category="heart")]),
    # other findings occupy zones
    ("Tiny left apical pneumothorax.", [pneumothorax(["left apical zone lung"])]),
    ("Small pneumothorax.", [pneumothorax([], category="pleura", block=BOTH)]),
    ("Calcified granuloma in the right upper lobe.", [finding("granuloma", None, ["lung upper lobe right"])]),
    ("Old fracture of the left sixth rib.", [finding("fracture", None, [], category="rib", block=[])]),
    # a slot of words: one doubt, one denial, one setting in many wordings
    ("It would be hard to confidently exclude edema.", [finding("edema", hedge="weak")]),
    ("Edema couldn't be definitely ruled out.", [finding("edema", hedge="weak")]),
    ("Right effusion is no longer clearly visualized.", [effusion(presence=NO)]),
    ("No substantial interval change of the edema.", [finding("edema", labels=BOTH)]),
    ("No change in the left effusion or the right apical opacity.", [
        effusion(["left lung base"]), finding("opacity", labels=["right apical zone lung"])
    ]),
    ("There is no increase in cardiac size.", []),
    ("In the proper clinical context, this is consistent with pneumonia.", [finding("pneumonia", hedge="weak")]),
    ("Differential diagnosis would include edema and atypical infection.", [
        finding("edema", hedge="weak"), finding("infection", None, hedge="weak")
    ]),
    ("Lingular density may be compatible with atelectasis.", [
        finding("density", "opacity", ["left mid zone lung"], of=["atelectasis"], predicted_hedge="weak")
    ]),
    ("Trace, if any, right effusion.", [effusion(["right lung base"], hedge="weak")]),
    ("Not seen on the lateral view, a right base opacity is questioned.", [
        finding("opacity", labels=["right lung base"], hedge="weak")
    ]),
    ("A right apical density is not identified on the lateral view.", [
        finding("density", "opacity", ["right apical zone lung"])
    ]),
    ("Both lungs are clear focal consolidation.", [finding("consolidation", presence=NO)]),
    ("Clear but hyperexpanded lungs.", [finding("hyperexpansion", None)]),
    ("No edema, with only minimal left effusion.", [finding("edema", presence=NO), effusion(["left lung base"])]),
    # a blank stands for the likelihood that was blanked
    ("Basilar opacities, XXXX discoid atelectasis and scarring.", [
        finding("opacity", labels=BASES, of=["atelectasis", "scar"], predicted_hedge="strong")
    ]),
    ("Left apical nodule without XXXX calcification.", [
        finding("nodule", None, ["left apical zone lung"]), finding("calcification", None, presence=NO)
    ]),
    # a hedge goes past what is told along with its disease, a denial does not
    ("There may be fibrosis accompanied by consolidation.", [
        finding("scar", None, hedge="weak"), finding("consolidation", hedge="weak")
    ]),
    ("The opacity is rather edema than pneumonia.", [
        finding("opacity", of=["edema"], predicted_hedge="definite"), finding("pneumonia", hedge="weak")
    ]),
    # a history ends where a statement with its own verb begins
    ("Known history of fever, consolidation is suspected.", [finding("consolidation", hedge="weak")]),
    ("Scar from old infectious process.", [finding("scar", None)]),
    ("Status post left lower lobectomy with right effusion.", [effusion(["right lung base"])]),
    ("CT is advised to further evaluate the mass.", []),
    ("The right effusion is not well visualized.", [effusion(["right lung base"], hedge="weak")]),
    ("Calcified hilar lymph nodes.", [finding("adenopathy", None)]),
    # the disease before its opacity
    ("Edema or aspiration might explain the hilar opacities.", [
        finding("opacity", labels=["right mid zone lung", "left mid zone lung"], of=["aspiration", "edema"],
                predicted_hedge="weak")
    ]),
    ("Right effusion probably accounts for the basilar density.", [
        finding("density", "opacity", BASES, of=["effusion"], predicted_hedge="strong")
    ]),
    ("Patchy opacities at the left base (pneumonia or atelectasis).", [
        finding("opacity", labels=["left lung base"], of=["pneumonia", "atelectasis"], predicted_hedge="strong")
    ]),
    ("Basilar opacities: aspiration, edema or atelectasis.", [
        finding("opacity", labels=BASES, of=["aspiration", "edema", "atelectasis"], predicted_hedge="strong")
    ]),
    ("Nodule or superimposed structures at the left apex.", [
        finding("nodule", None, ["left apical zone lung"], hedge="strong")
    ]),
    ("Consolidative right middle lobe opacity.", [finding("consolidation", labels=["lung middle lobe right"])]),
    ("Right apical opacity as well as possible left effusion.", [
        finding("opacity", labels=["right apical zone lung"]), effusion(["left lung base"], hedge="weak")
    ]),
    ("There is prominence of the lung markings and there are tiny effusions.", [
        finding("interstitial markings", None, BOTH), effusion(BASES)
    ]),
    # the head noun says what it is
    ("Mass-like opacity in the right apex.", [finding("opacity", labels=["right apical zone lung"])]),
    ("Nodular infiltrate of the lingula.", [finding("infiltrate", "opacity", ["left mid zone lung"])]),
    ("A dense right apical nodule.", [finding("density", "opacity", ["right apical zone lung"])]),
    ("Radiopaque density outside the patient.", []),
    ("Linear densities are consistent with surgical clips.", []),
    ("Linear density may be a surgical clip.", [finding("density", "opacity", BOTH)]),
    # hearts between normal and large
    ("Heart size is top normal to slightly enlarged.", [
        finding("borderline heart size", "cardiomegaly", [], hedge="strong")
    ]),
    ("Heart: moderately enlarged.", [finding("cardiomegaly", labels=[])]),
    ("The cardiac silhouette is larger than normal.", [finding("cardiomegaly", labels=[])]),
    # the same word of a bone and of a lung
    ("Collapse of the L1 vertebral body.", [finding("compression deformity", None, [], category="lumbar spine")]),
    ("The right middle lobe is collapsed.", [finding("atelectasis", labels=["lung middle lobe right"])]),
    ("Chronic left clavicular fracture.", [finding("fracture", None, [], category="clavicle")]),
    ("Flattened hemidiaphragms.", [finding("flattened diaphragm", None, [], category="diaphragm")]),
    # fluid, and what it hides
    ("Tiny amount of fluid in the left costophrenic angle.", [effusion(["left lung base"])]),
    ("Air-fluid level in the stomach.", []),
    ("The right hemidiaphragm is obscured.", [finding("obscuration", None, [], related="opacity")]),
    ("The right base is hazy.", [finding("opacity", labels=["right lung base"])]),
    ("Right costophrenic angle is blunted.", [finding("blunting", None, ["right lung base"])]),
    # views are no place where another is told; the spine is what the lung lies in front of
    ("On the lateral view, a density overlies the spine.", [
        finding("density", "opacity", [], category="lateral view location", block=BOTH)
    ]),
    ("Nodular opacity at the level of T7.", [finding("opacity", labels=BOTH)]),
    ("The lateral view shows a moderate right effusion.", [effusion(["right lung base"])]),
    ("On the basis of the exam, edema is possible.", [finding("edema", labels=BOTH, hedge="weak")]),
    # places of neighbours
    ("Elevated left hemidiaphragm with adjacent atelectasis.", [
        finding("elevated hemidiaphragm", None), finding("atelectasis", labels=["left lung base"])
    ]),
    ("Right upper lobe consolidation, now with small effusion.", [
        finding("consolidation", labels=["lung upper lobe right"]), effusion(["right lung base"])
    ]),
    ("Atelectasis versus early infiltrate at the left base.", [
        finding("atelectasis", labels=["left lung base"], hedge="strong"),
        finding("infiltrate", "opacity", ["left lung base"], hedge="strong"),
    ]),
    ("Right lung mass. Mild adjacent consolidation and/or atelectasis.", [
        finding("mass", None, ["right lung"]),
        finding("consolidation", labels=["right lung"], hedge="strong", index=2),
        finding("atelectasis", labels=["right lung"], hedge="strong", index=2),
    ]),
    ("Moderate left effusion along the chest wall.", [effusion(["left lung base"])]),
    ("Small right effusion. The effusion is unchanged.", [
        effusion(["right lung base"]), effusion(["right lung base"], index=2)
    ]),
    ("Right upper lobe opacity. Differential includes pneumonia.", [
        finding("opacity", labels=["lung upper lobe right"]),
        finding("pneumonia", labels=["lung upper lobe right"], hedge="weak", index=2),
    ]),
    ("The right lung is clear and the left apex shows consolidation.", [
        finding("consolidation", labels=["left apical zone lung"])
    ]),
    ("Opacities in the mid and lower right lung.", [
        finding("opacity", labels=["right mid zone lung", "right lung base"])
    ]),
    ("Thickening of the left major fissure.", [finding("pleural thickening", None)]),
    ("Bibasilar opacities, right greater than left, and tiny right effusion.", [
        finding("opacity", labels=BASES), effusion(["right lung base"])
    ]),
    ("Edema in the left lung, especially the apex.", [finding("edema", labels=["left apical zone lung"])]),
    ("Pleural-based density of the left chest.", [finding("density", "opacity", ["left lung"])]),
    ("Right lung volume loss.", [finding("volume loss", None, ["right lung"])]),
    ("L > R effusions, R juxtahilar opacity.", [effusion(BASES), finding("opacity", labels=["right mid zone lung"])]),
    ("Rt. lower lobe consolidation: lt. apex clear.", [finding("consolidation", labels=["lung lower lobe right"])]),
    # one slip of the keys
    ("Bibasilar atelctasis.", [finding("atelectasis", labels=BASES)]),
    ("No plueral effusoin; cardiomegally.", [effusion(presence=NO), finding("cardiomegaly")]),
    ("An enema was given.", []),
    # no finding at all
    ("A left pleural catheter and a right chest tube are in place.", []),
    ("Left-sided pacemaker with leads in the right ventricle.", []),
    ("History of pneumonia.", []),
    ("Evaluate for pneumonia.", []),
    ("Followup radiograph to resolution of the consolidation is advised.", []),
    ("Scarring from prior pneumonia.", [finding("scar", None)]),
    ("The cardiac silhouette is within normal limits.", []),
    ("Soft tissue density projects over the right breast.", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SENTENCES, ids=[text for text, _ in SENTENCES])
def test_tuples(text, expected):
    ours = tuples_of(text)
    assert [item["entity"] for item in ours] == [item["entity"] for item in expected]
    for item, wanted in zip(ours, expected, strict=True):
        got = {key: item[key] for key in wanted}
        assert got == wanted | ({"labels": sort_labels(wanted["labels"])} if "labels" in wanted else {})


def sort_labels(found):
    return sorted(found, key=ZONE_LABELS.index)


def test_there_are_enough_sentences():
    assert len(SENTENCES) >= 40


def test_effusion_without_side_can_be_left_without_labels():
    options = accuracy.EngineOptions(effusion_without_side="none")
    (item,) = engine.load_engine("rules", options)(["Small effusion."])
    assert (item["category"], item["labels"], item["block"]) == ("pleura", [], BOTH)


def test_spans_are_the_words_of_the_finding():
    text = "1. The heart is   enlarged.\n2. Small LEFT pleural effusion."
    spans = sentences.split_sentences(text)
    for item, words in zip(tuples_of(text), ("heart is   enlarged", "pleural effusion"), strict=True):
        start = spans[item["sentence_index"] - 1][0]
        assert text[start + item["span"][0] : start + item["span"][1]] == words


# ---- forms of the lexicon's phrases ----------------------------------------------------------------------------------


def test_slots_are_filled_in_also_inside_slots():
    slots = {"very": ["", "quite {how}"], "how": ["so", "too"]}
    tree = {"before": ["{very} large", "old"], "gap": 3}
    assert rules_lexicon.fill_slots(tree, slots) == {
        "before": ["large", "quite so large", "quite too large", "old"],
        "gap": 3,
    }
    with pytest.raises(KeyError, match="size"):
        rules_lexicon.fill_slots(["{size} heart"], slots)


def test_a_slip_between_two_words_stands_for_neither():
    word_by_misspelling = rules_lexicon.misspellings(["edemas", "edemic"], known_words={"edema"})
    assert (word_by_misspelling["deemas"], word_by_misspelling["edmic"]) == ("edemas", "edemic")
    assert word_by_misspelling.keys().isdisjoint({"edema", "edemas", "edemis"})


# ---- the section as a whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "comparison", "lungs"),
    [
        ("No significant change since the prior study.", True, False),
        ("Unchanged. No new opacity or effusion.", True, True),
        ("Unchanged. The lungs are clear.", False, True),
        ("No change. No pneumothorax.", False, True),
        ("Left basal opacity. Otherwise unchanged.", False, True),
        ("The heart is enlarged.", False, False),
    ],
)
def test_statements(text, comparison, lungs):
    texts = [text[a:b] for a, b in sentences.split_sentences(text)]
    tuples = STRUCTURE(texts)
    assert statements.comparison_only(texts, tuples) is comparison
    assert statements.mentions_lungs(texts, tuples) is lungs


@pytest.mark.parametrize(
    ("text", "presence"),
    [
        ("The edema has gone from severe to mild.", "positive"),
        ("Consolidation has gone from bad to worse.", "positive"),
        ("The effusions have gone down.", "positive"),
        ("The edema has gone from the left base.", "negative"),
        ("The effusion has gone.", "negative"),
    ],
)
def test_what_has_gone_from_one_grade_to_another_is_there(text, presence):
    assert [row["presence"] for row in tuples_of(text)] == [presence]

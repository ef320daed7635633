"""Clinical logic from a report's tuples to pairs: the paper's examples, each strict rule, and what may be denied."""

import pytest

from dataset_cases import tuple_
from logic_cases import negated_texts, pairs_of, says, texts

# The paper's own examples


def test_figure_3():
    """Bibasilar atelectasis. Cardiomegaly."""
    bases = ["right lung base", "left lung base"]
    tuples = [says("atelectasis", bases), says("cardiomegaly", None, sentence_index=2, category="heart")]
    made = texts(pairs_of(tuples, ctr=0.6))
    assert made == [
        ("Segment the atelectasis in the right lung base and left lung base.", "[SEG]"),
        (
            "Segment the opacity in the right lung base and left lung base and predict its type.",
            "[SEG] It is highly suggestive of atelectasis.",
        ),
        ("Segment the cardiomegaly.", "[SEG]"),
        ("Segment the atelectasis.", "[SEG] It is located in the right lung base and left lung base."),
    ]


def test_figure_11_half_grounded_and_tentative():
    """Opacities of both bases, likely atelectasis, the mask in the right one alone: no text names the left base."""
    bases = ["right lung base", "left lung base"]
    finding = says("opacity", bases, certainty="tentative", hedge="strong", predicted_lesion_type="atelectasis")
    made = [pair for pair in pairs_of([finding], {0: ["right lung base"]}) if pair.seg]
    assert [(pair.instruction, pair.answer) for pair in made] == [
        ("Segment the opacity in the right lung base.", "[SEG]"),
        (
            "Segment the opacity in the right lung base and predict its type.",
            "[SEG] It possibly reflects atelectasis.",
        ),
    ]
    assert {(pair.target, pair.certainty, pair.reported_location) for pair in made} == {
        ("atelectasis", "tentative", tuple(bases))
    }


# Each strict rule: a report that the paper's letter would contradict


def test_strict_predicted_other():
    """An opacity that is a nipple shadow is none; nothing is denied there either."""
    report = [says("opacity", ["right lung base"], predicted_lesion_type="nipple shadow")]
    assert texts(pairs_of(report)) == []
    assert "Segment the edema in the right lung base." not in negated_texts(report)
    letter = texts(pairs_of(report, predicted_other="paper"))
    assert ("Segment the opacity in the right lung base.", "[SEG]") in letter


def test_strict_blocking():
    """A retrocardiac consolidation has no zone label: the left base is not free of consolidation."""
    report = [
        says("consolidation", [], location=["retrocardiac"], category="lateral view location"),
        tuple_("effusion"),
    ]
    contradiction = "Segment the consolidation in the left lung base."
    assert contradiction not in negated_texts(report)
    assert contradiction in negated_texts(report, blocking="paper")
    assert "Segment the consolidation in the right lung base." in negated_texts(report)


def test_strict_kinds():
    """A pneumonia is an opacity, though the report also says "no other opacity"."""
    report = [says("pneumonia", ["right lung base"]), tuple_("opacity")]
    contradictions = {"Segment the opacity in the right lung base.", "Segment the opacity in the right lung."}
    assert not contradictions & negated_texts(report)
    assert contradictions & negated_texts(report, kinds="paper")


def test_strict_joint_location():
    """An opacity of the right lung and a pneumonia of its base that the mask does not show."""
    report = [says("opacity", ["right lung"]), says("pneumonia", ["right lung base"])]
    contradiction = ("Segment the opacity in the right lung.", "[SEG]")
    grounded = {0: ["right lung"], 1: []}
    assert contradiction not in texts(pairs_of(report, grounded))
    assert contradiction in texts(pairs_of(report, grounded, joint_location="paper"))
    both = [pair for pair in pairs_of(report) if pair.instruction == contradiction[0]]
    assert len(both) == 1


def test_strict_one_answer():
    """Atelectasis for sure and perhaps edema, at one place: what is the opacity there?"""
    report = [
        says("atelectasis", ["left lung base"]),
        says("opacity", ["left lung base"], predicted_lesion_type="edema", certainty="tentative", hedge="strong"),
    ]
    question = "Segment the opacity in the left lung base and predict its type."
    letter = {"joint_location": "paper"}
    assert question not in dict(texts(pairs_of(report, **letter)))
    answers = [answer for asked, answer in texts(pairs_of(report, one_answer="paper", **letter)) if asked == question]
    assert len(set(answers)) == 2


def test_tentative_effusion_stands_against_no_opacity():
    """Its own text calls it an opacity."""
    report = [says("effusion", ["left lung base"], certainty="tentative", hedge="strong"), tuple_("opacity")]
    assert ("Segment the opacity in the left lung base.", "[SEG]") in texts(pairs_of(report))
    denied = negated_texts(report)
    assert "Segment the opacity in the left lung base." not in denied
    assert "Segment the opacity." not in denied


def test_tentative_effusion_is_an_opacity_beside_no_new_opacity():
    report = [
        says("effusion", ["left lung base"], certainty="tentative", hedge="strong"),
        tuple_("opacity", denies=False),
    ]
    denied = {text for text in negated_texts(report) if "opacity" in text}
    assert "Segment the opacity in the right lung." in denied
    assert not any("left lung." in text or "left lung base" in text for text in denied)


def test_weakly_hedged_heart_is_neither_affirmed_nor_denied():
    report = [says("cardiomegaly", None, certainty="tentative", hedge="weak", category="heart")]
    assert not [pair for pair in pairs_of(report, ctr=0.3) if pair.target == "cardiomegaly"]
    sure = [says("cardiomegaly", None, category="heart")]
    assert texts(pairs_of(sure)) == [("Segment the cardiomegaly.", "[SEG]")]


def test_related_term_is_not_denied():
    report = [says(None, ["right lung"], entity="vascular congestion", related="edema")]
    assert not any("edema" in text for text in negated_texts(report))
    assert any("effusion" in text for text in negated_texts(report))


def test_no_finding_of_any_kind_is_under_a_silent_negative():
    """A nodule of the right upper zone keeps every type from being denied there (A.6)."""
    report = [says(None, ["right upper zone lung"])]
    denied = negated_texts(report)
    assert not any("right upper zone" in text or "the right lung." in text for text in denied)
    assert any("right lung base" in text for text in denied)


@pytest.mark.parametrize(
    ("tuples", "silent"),
    [([], {"mentions_lungs": False}), ([], {"comparison_only": True}), ([tuple_("pneumonia", denies=False)], {})],
)
def test_the_other_section_only_vetoes(tuples, silent):
    """The findings say nothing of a pneumonia that may be denied; the impression affirms one at the right base."""
    other = {"other_tuples": [says("pneumonia", ["right lung base"])]}
    assert not any("pneumonia" in text for text in negated_texts(tuples, more=silent))
    assert not any("pneumonia" in text for text in negated_texts(tuples, more=silent | other))
    assert any("pneumonia" in text for text in negated_texts([], more=other))


def test_one_of_several_candidates_is_no_part_of_a_global_answer():
    """A pneumonia of the left base; an opacity of the right one, surely there, is "atelectasis or pneumonia"."""
    pneumonia = says("pneumonia", ["left lung base"])
    doubtful = says("opacity", ["right lung base"], candidates=["atelectasis", "pneumonia"])
    whole = ("Segment the pneumonia.", "[SEG] It is located in the left lung base.")
    assert whole in texts(pairs_of([pneumonia]))
    assert not any(asked == whole[0] for asked, _ in texts(pairs_of([pneumonia, doubtful])))


@pytest.mark.parametrize(
    ("places", "denied_of_all"), [(["right lung"], False), (["right lung", "left lung"], True), ([], True)]
)
def test_what_is_negated_on_one_side_is_not_denied_of_the_picture(places, denied_of_all):
    """ "No right effusion" says nothing of the left lung."""
    negated = tuple_("effusion", "negative", location=places or None, labels=places)
    found = negated_texts([negated])
    assert (
        "Segment the pleural effusion." in found or any("effusion" in x and "lung" not in x for x in found)
    ) == denied_of_all

"""Positive and negative pairs: the statements on a study, and the possible denials."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS, in_table_order
from cxr.ils import templates
from cxr.ils.dataset.negatives import Bars, Evidence
from cxr.ils.dataset.negatives import gather_evidence as evidence_of
from cxr.ils.dataset.pairs import make_positives
from dataset_cases import ALL, LEFT, LUNG_LESIONS, RIGHT, WITNESSES, deny, line, may, said, study, tuple_, unit

evidence = partial(evidence_of, unknown_words_max=0.05)

# Positives


def test_each_unit_gets_its_texts_and_each_basic_its_twin():
    units = [
        unit(0, "basic", "atelectasis", ["right lung base"], word="opacity", certainty="tentative"),
        unit(1, "basic", "effusion", ["left lung base"], sentence_index=3),
        unit(2, "global", "effusion", ["left lung base"], sentence_index=3),
        unit(3, "global", "cardiomegaly", ["heart"], sentence_index=2),
    ]
    made, dropped = make_positives(units, one_answer="strict")
    assert [(pair.type, pair.target, pair.certainty, pair.instruction, pair.answer) for pair in made] == [
        ("basic", "atelectasis", "tentative", "Segment the opacity in the right lung base.", "[SEG]"),
        (
            "lesion_inference",
            "atelectasis",
            "tentative",
            "Segment the opacity in the right lung base and predict its type.",
            "[SEG] It possibly reflects atelectasis.",
        ),
        ("basic", "effusion", "definitive", "Segment the effusion in the left lung base.", "[SEG]"),
        ("global", "effusion", "definitive", "Segment the effusion.", "[SEG] It is located in the left lung base."),
        ("global", "cardiomegaly", None, "Segment the cardiomegaly.", "[SEG]"),
    ]
    assert [pair.mask_id for pair in made] == ["m0", "m0", "m1", "m2", "m3"]
    assert [pair.sentence_index for pair in made] == [1, 1, 3, 3, 2]
    assert dropped == []


def test_dropped_units_and_twins_are_counted_with_their_reason():
    units = [
        unit(0, "basic", "edema", ["left lung"], dropped="ungrounded_sibling", mask_id=None, inference=False),
        unit(1, "basic", "edema", ["right lung"], inference=False, inference_dropped="several_candidates"),
    ]
    made, dropped = make_positives(units, one_answer="strict")
    assert [(pair.type, pair.location) for pair in made] == [("basic", ("right lung",))]
    assert dropped == [
        {"type": "basic", "target": "edema", "reason": "ungrounded_sibling"},
        {"type": "lesion_inference", "target": "edema", "reason": "several_candidates"},
    ]


def test_one_instruction_has_one_answer_only_under_strict():
    units = [
        unit(0, "basic", "atelectasis", ["left lung base"]),
        unit(1, "basic", "edema", ["left lung base"]),
    ]
    made, dropped = make_positives(units, one_answer="strict")
    assert [pair.instruction for pair in made] == [
        "Segment the atelectasis in the left lung base.",
        "Segment the edema in the left lung base.",
    ]
    assert [(row["target"], row["reason"]) for row in dropped] == [
        ("atelectasis", "conflicting_answer"),
        ("edema", "conflicting_answer"),
    ]
    made, dropped = make_positives(units, one_answer="paper")
    answers = [pair.answer for pair in made if pair.type == "lesion_inference"]
    assert answers == ["[SEG] It is highly suggestive of atelectasis.", "[SEG] It is highly suggestive of edema."]
    assert dropped == []


# Negatives: what may be denied


def test_a_silent_type_is_denied_at_empty_locations_and_globally():
    options = may("edema", said(empty=RIGHT))
    assert options.basic == tuple(in_table_order(RIGHT))
    assert options.global_


def test_a_positive_type_is_denied_at_empty_locations_only():
    options = may("edema", said(empty=RIGHT, standing=frozenset({"edema"}), blocked={"edema": LEFT}))
    assert set(options.basic) == RIGHT
    assert not options.global_


def test_an_explicit_denial_reaches_places_where_another_lesion_is():
    """Fig. 11: "There is no effusion" may be asked where an opacity is; the opacity itself is not denied there."""
    known = said(
        empty=RIGHT,
        standing=frozenset({"opacity"}),
        blocked={"opacity": LEFT},
        negated={"effusion": ALL},
        everywhere=frozenset({"effusion"}),
    )
    assert set(may("effusion", known).basic) == ALL
    assert set(may("opacity", known).basic) == RIGHT
    assert set(may("pneumonia", known).basic) == RIGHT


def test_a_denial_of_one_side_reaches_that_side_only_and_never_a_finding():
    known = evidence(
        study(
            empty=[],
            standing=[{"lesion": "effusion", "locations": ["right lung", "right lung base"]}],
            lesion_blocked=[
                {
                    "lesion": "effusion",
                    "locations": ["right lung", "right lung base"],
                    "anywhere": True,
                    "global_blocked": True,
                }
            ],
        ),
        line([tuple_("effusion", location=["right"], labels=["right lung"])]),
    )
    assert may("effusion", known).basic == (
        "right apical zone lung",
        "right upper zone lung",
        "right mid zone lung",
    )
    assert not may("effusion", known).global_


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ({"location": None, "labels": ["right lung base", "left lung base"]}, ALL),
        ({"location": ["left"], "labels": ["left lung"]}, LEFT),
        ({"location": ["left base"], "labels": ["left lung base"]}, {"left lung base"}),
        ({"location": ["left lower lobe"], "labels": ["lung lower lobe left"]}, set()),
        ({"location": ["retrocardiac"], "labels": []}, set()),
    ],
)
def test_places_inside_what_was_negated(row, places):
    known = evidence(study(empty=[]), line([tuple_("consolidation", **row)]))
    assert known.negated["consolidation"] == places
    assert ("consolidation" in known.everywhere) == (row["location"] is None)


def test_related_term_blocks_the_whole_study():
    known = said(related=frozenset({"edema"}))
    assert may("edema", known).reason == "related_term"
    assert may("effusion", known).reason is None


def test_no_new_lesion_is_no_denial():
    known = evidence(study(), line([tuple_("consolidation", denies=False)]))
    assert may("consolidation", known).reason == "neither_affirmed_nor_denied"
    # An old consolidation would be an opacity.
    assert may("opacity", known).reason == "neither_affirmed_nor_denied"
    assert may("opacity", known, kinds="paper").global_
    assert may("pneumonia", known).global_


def test_unlikely_is_denied_at_empty_locations_only():
    known = evidence(study(empty=["left lung"]), line([tuple_("pneumonia", certainty="tentative")]))
    assert may("pneumonia", known).basic == ("left lung",)
    assert not may("pneumonia", known).global_


def test_opacity_is_denied_globally_only_where_all_ten_locations_are_empty():
    denied = {"negated": {"opacity": ALL}, "everywhere": frozenset({"opacity"})}
    assert may("opacity", said(**denied)).global_
    assert not may("opacity", said(empty=ALL - {"left lung"}, **denied)).global_
    assert may("effusion", said(empty=ALL - {"left lung"})).global_


def test_no_place_no_negative():
    known = said(empty=frozenset(), global_blocked=frozenset({"edema"}))
    assert may("edema", known).reason == "no_empty_location"


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"ctr": 0.45}, True),
        ({"ctr": 0.4501}, False),
        ({"ctr": None}, False),
        ({"ctr": float("nan")}, False),
        ({"standing": frozenset({"cardiomegaly"})}, False),
        ({"related": frozenset({"cardiomegaly"})}, False),
        ({"doubted": frozenset({"cardiomegaly"})}, False),
        ({"unclear": frozenset({"cardiomegaly"})}, False),
        ({"about_lungs": False}, True),
        ({"negated": {"cardiomegaly": ALL}}, True),
    ],
)
def test_cardiomegaly_needs_a_narrow_heart_and_a_report_that_does_not_affirm(changes, allowed):
    options = may("cardiomegaly", said(**changes))
    assert options.global_ == allowed
    assert options.basic == ()


@pytest.mark.parametrize(
    ("mentions_lungs", "comparison_only", "silent"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_silent_types_need_a_section_about_the_lungs(mentions_lungs, comparison_only, silent):
    report = line([tuple_("effusion")], mentions_lungs=mentions_lungs, comparison_only=comparison_only)
    known = evidence(study(), report)
    assert (may("edema", known).reason == "section_silent") == silent
    assert may("effusion", known).global_
    placed = evidence(study(), report | {"tuples": [tuple_("effusion", location=["left"], labels=["left lung"])]})
    assert set(may("effusion", placed).basic) == ALL
    assert not may("effusion", placed).global_  # "no left effusion" says nothing of the right


# Negatives: what is drawn


def test_draws_fall_below_their_bars():
    shares = {"pneumonia": 0.0, "atelectasis": 1.0, "opacity": 0.2, "consolidation": 0.5, "edema": 0.1, "effusion": 0.3}
    counts: Counter = Counter()
    studies = 3000
    for number in range(studies):
        made, _ = deny(said(study_id=f"s{number}"), bars=Bars(shares, 0.5))
        counts.update((pair.target, pair.type) for pair in made)
    for lesion, share in shares.items():
        # four standard errors of a share
        assert abs(counts[lesion, "global"] / studies - share) <= 4 * (share * (1 - share) / studies) ** 0.5
    coin = counts["opacity", "lesion_inference"] / (counts["opacity", "lesion_inference"] + counts["opacity", "basic"])
    assert abs(coin - 0.5) < 0.045
    assert counts["cardiomegaly", "global"] == studies


def test_every_empty_location_is_drawn_about_equally():
    places = Counter(
        pair.location[0]
        for number in range(2000)
        for pair in deny(said(study_id=f"s{number}"), bars=Bars(dict.fromkeys(LUNG_LESIONS, 0.0), 0.5))[0]
        if pair.target == "edema"
    )
    assert set(places) == ALL
    assert all(150 <= number <= 250 for number in places.values())


def test_a_draw_depends_on_seed_study_and_lesion_alone():
    first, _ = deny(said())
    again, _ = deny(said())
    assert first == again
    assert any(deny(said(), seed=seed)[0] != first for seed in range(8, 12))
    assert any(deny(said(study_id=f"s{n}"))[0] != first for n in range(2, 6))
    # Another lesion's fate changes nothing here.
    fewer, _ = deny(said(related=frozenset({"pneumonia"})))
    assert fewer == [pair for pair in first if pair.target != "pneumonia"]


def test_a_negative_never_repeats_a_positive_instruction():
    known = said(empty=frozenset(), negated={"opacity": frozenset({"left lung base"})}, about_lungs=False, ctr=None)
    assert len(deny(known)[0]) == 1
    taken = [templates.write_instruction(kind, "opacity", ["left lung base"]) for kind in ("basic", "lesion_inference")]
    made, reasons = deny(known, taken=taken)
    assert made == []
    assert reasons["opacity"] == "same_text"


LESION_SETS = st.frozensets(st.sampled_from(LESIONS))
PLACE_SETS = st.frozensets(st.sampled_from(VALID_LOCATIONS))
EVIDENCE = st.builds(
    Evidence,
    witnesses=st.just(WITNESSES),
    study_id=st.text("0123456789", min_size=1, max_size=4),
    empty=PLACE_SETS,
    blocked=st.dictionaries(st.sampled_from(LESIONS), PLACE_SETS),
    global_blocked=LESION_SETS,
    standing=LESION_SETS,
    related=LESION_SETS,
    negated=st.dictionaries(st.sampled_from(LESIONS), PLACE_SETS),
    everywhere=LESION_SETS,
    unclear=LESION_SETS,
    doubted=LESION_SETS,
    about_lungs=st.booleans(),
    ctr=st.none() | st.floats(0, 1),
)


@given(EVIDENCE)
def test_negatives_never_contradict_the_evidence(known):
    made, reasons = deny(known)
    assert len({pair.target for pair in made}) == len(made), "more than one negative of a lesion type"
    assert sorted([pair.target for pair in made] + list(reasons)) == sorted(LESIONS)
    for pair in made:
        assert (pair.seg, pair.mask_id, pair.certainty, pair.sentence_index) == (False, None, None, None)
        assert pair.target not in known.related
        if pair.type == "global":
            assert pair.location == ()
            assert pair.target not in known.global_blocked | known.standing | known.unclear | known.doubted
            assert pair.target != "opacity" or known.empty == ALL
            assert pair.target != "cardiomegaly" or known.ctr <= 0.45
        else:
            (place,) = pair.location
            assert place not in known.blocked.get(pair.target, ())
            assert place in known.empty | known.negated.get(pair.target, frozenset())
        assert (pair.type == "lesion_inference") <= (pair.target == "opacity")

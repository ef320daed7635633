"""The catalogue of findings and the parser of prompts: every phrase by hand, and a user's file."""

import pytest
import yaml

from cxr.base.errors import UserError
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.findings.catalogue import (
    WHOLE_LUNG,
    choose_sides,
    draw_prompt,
    parse_prompt,
    read_catalogue,
    zone_bounds,
)
from nodules import NODULE, written

BASE, LOBE, ZONE = "hemidiaphragm and costophrenic angle", "lower lung lobe", "lower lung zone"
BY_HAND = {
    "atelectasis": {
        "Bibasilar atelectasis.": ("both", BASE),
        "Left basilar atelectasis.": ("left", BASE),
        "Basilar atelectasis.": ("any", BASE),
        "Bibasilar subsegmental atelectasis.": ("both", BASE),
        "Right basilar atelectasis.": ("right", BASE),
        "Left lower lobe atelectasis.": ("left", LOBE),
        "Atelectasis in the lung bases.": ("both", BASE),
        "Left basilar subsegmental atelectasis.": ("left", BASE),
        "Streaky bibasilar atelectasis.": ("both", BASE),
        "Subsegmental atelectasis.": ("any", ""),
        "Linear bibasilar atelectasis.": ("both", BASE),
        "Atelectasis.": ("any", ""),
        "Left lower lobe collapse.": ("left", LOBE),
        "Right lower lobe atelectasis.": ("right", LOBE),
        "Right basilar subsegmental atelectasis.": ("right", BASE),
        "Patchy bibasilar atelectasis.": ("both", BASE),
        "Right upper lobe collapse.": ("right", "upper lung lobe"),
        "Right middle lobe collapse.": ("right", "mid lung lobe"),
    },
    "cardiomegaly": dict.fromkeys(
        (
            "Cardiomegaly.",
            "Enlarged cardiac silhouette.",
            "Enlargement of the cardiac silhouette.",
            "Prominent cardiac silhouette.",
            "Enlarged heart.",
        ),
        ("any", ""),
    ),
    "consolidation": {
        "Left lower lobe consolidation.": ("left", LOBE),
        "Right lower lobe consolidation.": ("right", LOBE),
        "Patchy consolidation in the mid left lung.": ("left", "mid lung zone"),
        "Patchy consolidation in the right lung.": ("right", ""),
        "Patchy consolidation in the right lower lobe.": ("right", LOBE),
        "Left consolidation.": ("left", ""),
        "Patchy bilateral pulmonary consolidations.": ("both", ""),
        "Bilateral consolidations.": ("both", ""),
        "Right middle lobe consolidation.": ("right", "mid lung lobe"),
        "Right upper lobe consolidation.": ("right", "upper lung lobe"),
    },
    "edema": {
        "Pulmonary edema.": ("any", ""),
        "Interstitial pulmonary edema.": ("any", ""),
        "Interstitial edema.": ("any", ""),
        "Edema.": ("any", ""),
        "Peribronchial cuffing consistent with pulmonary edema.": ("any", "hilar structures"),
    },
    "opacity": {
        "Right lower lobe infiltrate.": ("right", LOBE),
        "Right lower lobe opacity.": ("right", LOBE),
        "Left lower lobe opacity.": ("left", LOBE),
        "Bilateral lower lobe infiltrates.": ("both", LOBE),
        "Left lower lobe infiltrate.": ("left", LOBE),
        "Patchy bilateral pulmonary opacities.": ("both", ""),
        "Patchy left lower lobe opacity.": ("left", LOBE),
        "Bibasilar opacities.": ("both", BASE),
        "Patchy ground-glass opacities at the right lung base.": ("right", BASE),
        "Left basilar opacity.": ("left", BASE),
        "Right basilar opacity.": ("right", BASE),
        "Lower lung opacity.": ("any", ZONE),
        "Patchy ground-glass opacities in the left lower lung.": ("left", ZONE),
        "Patchy bibasilar opacities.": ("both", BASE),
    },
    "effusion": {
        "Bilateral pleural effusions.": ("both", ""),
        "Right pleural effusion.": ("right", ""),
        "Left pleural effusion.": ("left", ""),
        "Right effusion.": ("right", ""),
        "Bilateral effusions.": ("both", ""),
        "Right-sided pleural effusion.": ("right", ""),
        "Left-sided pleural effusion.": ("left", ""),
        "Left effusion.": ("left", ""),
    },
    "pneumothorax": {
        "Right apical pneumothorax.": ("right", "apical zone"),
        "Left apical pneumothorax.": ("left", "apical zone"),
        "Right pneumothorax.": ("right", ""),
        "Left pneumothorax.": ("left", ""),
        "Pneumothorax.": ("any", ""),
        "Apical pneumothorax.": ("any", "apical zone"),
        "Bilateral pneumothoraces.": ("both", ""),
    },
}


def test_all_67_phrases_name_the_side_and_the_zone_that_a_person_reads():
    catalogue = read_catalogue()
    assert {name: list(finding.prompts) for name, finding in catalogue.findings.items()} == {
        name: list(by_hand) for name, by_hand in BY_HAND.items()
    }
    assert sum(map(len, BY_HAND.values())) == 67
    for by_hand in BY_HAND.values():
        assert {text: parse_prompt(text, catalogue.parser) for text in by_hand} == by_hand


def test_the_findings_are_the_seven_with_weights_that_add_to_one():
    catalogue = read_catalogue()
    assert [(name, one.label) for name, one in catalogue.findings.items()] == list(FINDINGS.items())
    for finding in catalogue.findings.values():
        assert sum(finding.prompts.values()) == pytest.approx(1, abs=1e-9)
        assert finding.prior.origin == "paper"


def test_a_left_zone_is_mirrored_with_its_sign():
    catalogue = read_catalogue()
    # x of the left lung from the picture's left, -10.13 to 106.55, is 100 - 106.55 to 100 + 10.13 from the lateral edge
    assert zone_bounds(LOBE, "left", catalogue) == (LOBE, pytest.approx((-6.55, 26.42, 110.13, 100.0)))
    assert zone_bounds(LOBE, "right", catalogue) == (LOBE, (0.0, 52.67, 108.7, 100.0))
    assert zone_bounds("", "left", catalogue) == ("", WHOLE_LUNG)


def test_a_lobe_that_the_left_lung_lacks_is_its_mid_zone():
    catalogue = read_catalogue()
    assert parse_prompt("Left middle lobe opacity.", catalogue.parser) == ("left", "mid lung zone")
    assert zone_bounds("mid lung lobe", "left", catalogue) == zone_bounds("mid lung zone", "left", catalogue)


def test_a_prompt_without_a_side_takes_both_lungs_or_one_by_a_coin():
    assert choose_sides("any", "both", 0.9) == ("right", "left")
    assert [choose_sides("any", "one", coin) for coin in (0.0, 0.499, 0.5, 0.999)] == [
        ("right",), ("right",), ("left",), ("left",),
    ]  # fmt: skip
    assert choose_sides("left", "both", 0.1) == ("left",)
    assert choose_sides("both", "one", 0.1) == ("right", "left")


def test_a_prompt_is_drawn_by_its_weight():
    weights = {"a": 2.0, "none": 0.0, "b": 6.0}
    assert [draw_prompt(weights, uniform) for uniform in (0.0, 0.2499, 0.25, 0.9999)] == ["a", "a", "b", "b"]


def test_a_users_file_adds_a_finding_and_changes_no_other(tmp_path):
    mine, plain = read_catalogue(written(tmp_path)), read_catalogue()
    nodule = mine.findings["nodule"]
    assert (nodule.label, nodule.painter, nodule.prior.origin) == ("Nodule", "opacity", "file")
    assert nodule.prior.overshoot == (0.0, 0.0, 0.0, 0.0)
    assert {name: one for name, one in mine.findings.items() if name != "nodule"} == plain.findings
    assert parse_prompt("Nodule in the left perihilar region.", mine.parser) == ("left", "perihilar")
    assert zone_bounds("perihilar", "left", mine) == ("perihilar", (50.0, 20.0, 100.0, 70.0))


def changed(*keys, to) -> dict:
    held = yaml.safe_load(yaml.safe_dump(NODULE))
    inner = held
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return held


PRIOR = ("findings", "nodule", "prior")


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (changed(*PRIOR, "size", "sigma", to=[[1, 2], [2, 1]]), ["nodule.prior.size.sigma", "positive definite"]),
        (changed(*PRIOR, "size", "sigma", to=[[1, 0.5], [0.4, 1]]), ["sigma", "symmetric"]),
        (changed(*PRIOR, "size", "mu", to=[1, "x"]), ["prior.size.mu", "2 numbers"]),
        (changed(*PRIOR, "center_y", to={"family": "normal"}), ["center_y.family is 'normal'", "norm,"]),
        (changed(*PRIOR, "center_y", "scale", to=0), ["center_y.scale is 0", "above 0"]),
        (changed(*PRIOR, "center_y", to={"family": "beta", "a": 1}), ["center_y lacks b"]),
        (changed(*PRIOR, "center_y", to={"family": "norm", "a": 1}), ["center_y.a is no parameter"]),
        (changed(*PRIOR, "ctr", to={"family": "norm"}), ["elements", "ctr", "center"]),
        (changed(*PRIOR, "size", to={"family": "norm"}), ["prior.size.family is 'norm'", "mvlognormal"]),
        (changed("findings", "nodule", "prompts", to={"A.": 0}), ["nodule.prompts", "weights"]),
        (changed("findings", "nodule", "prompts", to={"A.": float("nan")}), ["nodule.prompts.A.", "give a number"]),
        (changed("findings", "nodule", "overshoot", to=[1, 0, 0, 0]), ["overshoot", "not above 0"]),
        (changed("findings", "nodule", "colour", to="red"), ["nodule.colour is no key"]),
        (changed("zones", "left", "perihilar", to=[50, 20, 50, 70]), ["zones.left.perihilar", "x1 < x2"]),
        (changed("zones", "left", to={}), ["perihilar", "zones.left"]),
        (changed("zones", "middle", to={}), ["zones.middle is no side"]),
        (changed("parser", "zones", to=[["(", "perihilar"]]), ["parser.zones", "regular expression"]),
        (changed("parser", "sides", to=[["up", "top"]]), ["the side 'top'", "right, left or both"]),
        (changed("findings", "nodule", "label", to="edema"), ["nodule.label is 'edema'", "as for edema", "change one"]),
        ({"finding": {}}, ["'finding' is no key", "findings"]),
        ([1], ["no mapping"]),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_key_value_and_remedy(tmp_path, held, words):
    with pytest.raises(UserError) as caught:
        read_catalogue(written(tmp_path, held))
    sentence = str(caught.value)
    assert sentence.startswith("semisyn.findings_file ")
    assert "\n" not in sentence
    for word in words:
        assert word in sentence

"""The healthy pool: its criteria in their order, bad rows, the funnel, and the counts of public tables."""

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cxr.base.errors import UserError
from cxr.base.exclusions import REASONS
from cxr.base.ledger import gather_exclusions
from cxr.base.tables import read_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.healthy import engine, labels, lite, select_healthy
from cxr.semisyn.healthy.engine import CRITERIA, criterion_of
from cxr.semisyn.healthy.select_healthy import FUNNEL, HEALTHY
from cxr.workflow import settings
from dicom_files import dataset, encoded
from healthy_shard import CHEST, Film, options, select
from xrv_wheel import xrv_table

DEVICES, _ = labels.read_report_words()


def test_a_film_stops_at_the_first_criterion_that_fails(tmp_path):
    """Each film fails its criterion and all that come after it."""
    positive = {"tuples": [{"presence": "positive"}], "sentences": ["A pacemaker is seen."]}
    sick = {"boxes": (("Lung Opacity", 0.95),), "organs": None}
    seated = {"position": "Seated"}
    films = [
        Film("frame", frame="undecodable", view="AP", split="test", report=None),
        Film("view", view="AP", split="test", told=seated, report=None, **sick),
        Film("position", split="test", told=seated, report=None, **sick),
        Film("split", split="test", report=None, **sick),
        Film("labels", report=None, **sick),
        Film("finding", report=positive, **sick),
        Film("device", report={"sentences": ["A pacemaker is seen."]}, **sick),
        Film("classifier", **sick),
        Film("organs", organs=None),
        Film("heart", organs={name: box for name, box in CHEST.items() if name != "heart"}),
        Film("lungs", organs=CHEST | {"left lung": (150, 80, 320, 400)}),
        Film("healthy", boxes=(("Lung Opacity", 0.4), ("Pleural effusion", 0.2), ("Nodule/Mass", 0.99))),
    ]
    gone, kept = select(tmp_path, films)
    assert {name: (reason, stage) for name, (reason, _, stage) in gone.items()} == {
        "frame": ("undecodable", "frames"),
        "view": ("not_pa", "semisyn_healthy"),
        "position": ("not_erect", "semisyn_healthy"),
        "split": ("other_split", "semisyn_healthy"),
        "labels": ("no_report", "semisyn_healthy"),
        "finding": ("has_finding", "semisyn_healthy"),
        "device": ("has_device", "semisyn_healthy"),
        "classifier": ("classifier_positive", "semisyn_healthy"),
        "organs": ("cut_off", "organs"),
        "heart": ("no_heart", "semisyn_healthy"),
        "lungs": ("lungs_overlap", "semisyn_healthy"),
    }
    assert {criterion_of(stage, reason) for reason, _, stage in gone.values()} == CRITERIA.keys() - {"reference"}
    (row,) = kept.to_dicts()
    assert row["ctr"] == 120 / 312
    assert [row[f"{organ}_{edge}"] for organ in ("right", "left", "heart") for edge in ("x1", "y1", "x2", "y2")] == [
        *CHEST["right lung"], *CHEST["left lung"], *CHEST["heart"],
    ]  # fmt: skip
    assert (row["score_opacity"], row["score_effusion"], row["score_edema"]) == (pytest.approx(0.4), 0.2, 0.0)
    assert row["score_pneumothorax"] is None
    assert row["score_cardiomegaly"] is None
    assert (row["labels"], row["position"], row["shard"]) == ("reports", "", "00")


def test_every_reason_of_the_criteria_is_declared():
    assert {reason for reasons in CRITERIA.values() for reason in reasons} <= REASONS.keys()
    with pytest.raises(KeyError):
        criterion_of("semisyn_healthy", "no_pairs")


# ------------------------------------------------------------------------------------------------- organs


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"right lung": CHEST["left lung"], "left lung": CHEST["right lung"]}, "lungs_overlap"),  # swapped
        ({"left lung": (240, 80, 412, 400)}, None),  # touching
        # 140 x 320 each, shifted by 76 and by 74: IoU .296 and .308
        ({"left lung": (176, 80, 316, 400)}, None),
        ({"left lung": (174, 80, 314, 400)}, "lungs_overlap"),
        ({"left lung": (0, 0, 0, 0)}, "no_lungs"),
        ({"right lung": (0, 0, 0, 0)}, "no_lungs"),
        ({"heart": (0, 0, 0, 0)}, "no_heart"),
        ({"right lung": (0, 0, 240, 512)}, None),  # touches the border: the organs stage judges that
    ],
)
def test_lungs_and_heart_that_nothing_can_be_placed_by(change, reason):
    named = dict(zip(engine.ORGANS, (CHEST | change).values(), strict=True))
    found = engine.check_organs(named)
    assert (found and found.reason) == reason


def test_a_heart_wider_than_the_thorax_is_positive_and_no_error(tmp_path):
    gone, _ = select(tmp_path, [Film("wide", organs=CHEST | {"heart": (50, 250, 500, 400)})])
    assert gone["wide"][:2] == ("classifier_positive", "CTR 1.442 > 0.55")


def test_the_ratio_is_that_of_ils(segment, tmp_path):
    from cxr.base.hdf5 import pack
    from cxr.ils.masks.evidence import compute_cardiothoracic_ratio

    rng = np.random.default_rng(3)
    for _ in range(20):
        masks = {label: np.zeros((512, 512), bool) for label in CHEST}
        for mask in masks.values():
            x1, y1 = rng.integers(0, 400, 2)
            mask[y1 : y1 + 80, x1 : x1 + int(rng.integers(2, 110))] = True
        lungs = masks["right lung"] | masks["left lung"]
        affine = np.array([[float(rng.uniform(0.5, 8)), 0, float(rng.uniform(-90, 9))], [0, 3.1, 0]])
        expected = compute_cardiothoracic_ratio(pack(masks["heart"]), pack(lungs), affine)
        assert engine.cardiothoracic_ratio(engine.organ_boxes(masks)) == pytest.approx(expected, abs=1e-12)


# --------------------------------------------------------------------------------------------- classifiers


@pytest.mark.parametrize(
    ("boxes", "view", "positive"),
    [
        ((), "PA", False),
        ((("Lung Opacity", 0.89),), "PA", False),
        ((("Lung Opacity", 0.9),), "PA", True),
        ((("Lung Opacity", 0.7), ("Lung Opacity", 0.66)), "PA", False),  # 1 - .3 * .34 = .898
        ((("Lung Opacity", 0.7), ("Consolidation", 0.67)), "PA", True),  # .901; the consolidation alone reaches .5 too
        ((("Consolidation", 0.49),), "PA", False),
        ((("Consolidation", 0.5),), "PA", True),
        ((("ILD", 0.5),), "PA", True),
        ((("ILD", 0.4), ("ILD", 0.4)), "PA", False),  # the largest counts, not all together
        ((("Pleural effusion", 0.5),), "PA", True),
        ((("Atelectasis", 0.5),), "PA", True),
        ((("Pneumothorax", 1.0), ("Nodule/Mass", 1.0)), "PA", False),
    ],
)
def test_the_screen_of_boxes(tmp_path, boxes, view, positive):
    gone, _ = select(tmp_path, [Film("i", boxes=boxes, view=view)])
    assert {reason for reason, *_ in gone.values()} == ({"classifier_positive"} if positive else set())


@pytest.mark.parametrize(
    ("width", "view", "positive"), [(171, "PA", False), (172, "PA", True), (187, "AP", False), (188, "AP", True)]
)
def test_the_heart_may_be_wider_on_an_ap_film(tmp_path, width, view, positive):
    """The thorax is 312 px wide: 171.6 px are .55, 187.2 px .60."""
    film = Film("i", organs=CHEST | {"heart": (200, 250, 200 + width, 400)}, view=view)
    gone, _ = select(tmp_path, [film], options(views=["PA", "AP"]))
    assert bool(gone) == positive


def test_a_film_without_boxes_because_the_detector_failed_is_no_healthy_film(tmp_path):
    gone, _ = select(tmp_path, [Film("i", boxes_reason="engine_failure")])
    assert gone["i"] == ("engine_failure", "told", "boxes")


def scored(path: Path, rows: list[str]) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_scores_of_a_table(tmp_path):
    told = ["image_id,Lung Opacity,pleural_effusion,other"]
    told += ["low,0.49,0.1,x", "high,0.2,0.5,x", "none,0.2,,x", "nan,nan,0,x", "far,1.5,0,x"]
    told += ["twice,0,0,x", "twice,0.9,0,x", "same,0,0,x", "same,0.0,0,x"]
    scores = scored(tmp_path / "scores.csv", told)
    films = [Film(name) for name in ("low", "high", "none", "nan", "far", "twice", "same", "absent")]
    gone, kept = select(tmp_path, films, options(classifier="table", table={"scores": "scores.csv"}), scores=scores)
    assert set(kept["image_id"]) == {"low", "same"}
    assert gone.pop("high")[:2] == ("classifier_positive", "effusion 0.500 >= 0.5")
    assert {reason for reason, *_ in gone.values()} == {"not_labelled"}
    row = kept.filter(pl.col("image_id") == "low").to_dicts()[0]
    assert (row["score_opacity"], row["score_effusion"], row["score_edema"]) == (0.49, 0.1, None)


@pytest.mark.parametrize("header", ["image_id,Hernia", "name,Edema"])
def test_a_table_of_scores_that_cannot_be_used(tmp_path, header):
    scores = scored(tmp_path / "scores.csv", [header, "i,0.1"])
    with pytest.raises(UserError, match=r"semisyn\.healthy\.table\.scores"):
        select(tmp_path, [Film("i")], options(classifier="table", table={"scores": "scores.csv"}), scores=scores)


# ------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("rule", "reasons"),
    [
        ("not_positive", [None, None, None, "has_device", "has_finding", "has_finding"]),
        ("negative", ["has_device", None, "has_device", "has_device", "has_finding", "has_finding"]),
        ("any", [None, None, None, None, "has_finding", "has_finding"]),
    ],
)
def test_devices_not_affirmed_or_denied(rule, reasons):
    table = pl.DataFrame({"n": [1.0, 1, 1, 1, None, 0], "d": [None, 0.0, -1, 1, 0, 0]})
    found = table.select(reason=labels.exclusion_reason(pl.col("n"), pl.col("d"), rule))["reason"].to_list()
    assert found == reasons


def test_labels_of_a_table(tmp_path):
    told = ["subject_id,study_id,No Finding,Support Devices,Edema"]
    told += ["1,100,1.0,,", "1,200,,,1.0", "1,300,1.0,1.0,", "1,400,1.0,,", "1,400,1.0,,", "1,500,1.0,,", "1,500,,1.0,"]
    told += ["1,600,1.0,-1.0,", "1,999,1.0,,"]  # the last study is not in the cohort
    table = scored(tmp_path / "labels.csv", told)
    films = [Film(f"i{number}", study_id=f"s{number}00") for number in range(1, 8)]
    gone, kept = select(tmp_path, films, options(labels="chexpert"), chexpert=table, reports="", reports_excluded="")
    assert set(kept["image_id"]) == {"i1", "i4", "i6"}
    assert set(kept["labels"]) == {"chexpert"}
    assert {name: reason for name, (reason, *_) in gone.items()} == {
        "i2": "has_finding", "i3": "has_device", "i5": "not_labelled", "i7": "not_labelled",
    }  # fmt: skip
    assert gone["i5"][1] == "rows of the table contradict each other"


@pytest.mark.parametrize("key", ["image_id", "Path"])
def test_a_table_may_name_images_or_paths(tmp_path, key):
    name = {"image_id": "i", "Path": "CheXpert-v1.0-small/train/patient1/study1/view1_frontal.jpg"}[key]
    table = scored(tmp_path / "labels.csv", [f"{key},No Finding,Support Devices", f"{name},1.0,"])
    film = Film("i", path="/elsewhere/patient1/study1/view1_frontal.jpg")
    gone, _ = select(tmp_path, [film], options(labels="chexpert"), chexpert=table)
    assert not gone


@pytest.mark.parametrize("header", ["study_id,No Finding", "dicom,No Finding,Support Devices", "study_id,Edema"])
def test_a_table_without_its_columns_is_refused(tmp_path, header):
    table = scored(tmp_path / "labels.csv", [header, "1,1,1"])
    with pytest.raises(UserError, match=r"semisyn\.healthy\.chexpert"):
        select(tmp_path, [Film("i")], options(labels="chexpert"), chexpert=table)


def test_counts_of_chexperts_public_table():
    """Its rows, frontal, PA, No Finding, then devices not affirmed, and devices denied."""
    table = xrv_table("chexpert_train.csv.gz", infer_schema=False)
    assert len(table) == 223_414
    frontal = table.filter(pl.col("Frontal/Lateral") == "Frontal")
    assert len(frontal) == 191_027
    posteroanterior = frontal.filter(pl.col("AP/PA") == "PA")
    assert len(posteroanterior) == 29_420
    for rule, left in (("any", 5_499), ("not_positive", 4_070), ("negative", 131)):
        number = [pl.col(name).cast(pl.Float64, strict=False) for name in (labels.NO_FINDING, labels.DEVICES)]
        reasons = posteroanterior.select(reason=labels.exclusion_reason(*number, rule))["reason"]
        assert reasons.null_count() == left, rule


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ({}, None),
        ({"tuples": [{"presence": "negative"}]}, None),
        ({"other_tuples": [{"presence": "positive"}]}, "has_finding"),  # hedged or of any category: it is affirmed
        ({"mentions_lungs": False, "sentences": ["No rib fracture."]}, "no_report"),
        ({"mentions_lungs": False, "sentences": ["Normal chest radiograph."]}, None),
        ({"comparison_only": True}, "not_labelled"),
        ({"unknown_words": [{"word": "x", "finding": True}]}, "not_labelled"),
        ({"unknown_words": [{"word": "x", "finding": False}]}, None),
        ({"sentences": ["The lungs are clear.", "Right PICC ends in the SVC."]}, "has_device"),
    ],
)
def test_labels_of_a_report(tmp_path, report, reason):
    gone, _ = select(tmp_path, [Film("i", report=report)])
    assert [found for found, *_ in gone.values()] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("sentence", "device"),
    [
        ("Left chest wall pacemaker leads are in standard position.", True),
        ("Sternotomy wires.", True),
        ("An endotracheal tube ends above the carina.", True),
        ("There is no pneumothorax after chest tube placement.", True),
        ("The central line has been removed.", False),
        ("Interval removal of the right PICC.", False),
        ("No catheter.", False),
        ("No lines, tubes or drains are seen.", False),
        ("The lungs are clear; linear hardly visible vessels.", False),
        ("The airway is patent.", False),
    ],
)
def test_words_of_devices(sentence, device):
    assert DEVICES.are_stated_in([sentence]) == device


# ----------------------------------------------------------------------------------------------- positions


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Erect", "Erect"), ("ERECT F-10440", "Erect"), ("upright", "Erect"), ("Semi-erect", "Semi-erect"),
        ("SEMI UPRIGHT", "Semi-erect"), ("Recumbent", "Recumbent"), ("HFS", "Recumbent"), ("supine", "Recumbent"),
        ("Sitting", "Sitting"), ("", ""), ("AP", ""), ("unknown", ""),
    ],
)  # fmt: skip
def test_words_of_positions(text, told):
    assert select_healthy.parse_position(text) == told


def test_a_header_tells_the_position_and_a_table_takes_precedence(tmp_path):
    values = np.zeros((8, 8), np.uint8)
    erect, lying = dataset(values), dataset(values)
    item = type(erect)()
    item.CodeMeaning, item.CodeValue = "Recumbent", "F-10450"
    lying.PatientOrientationCodeSequence = [item]
    for name, made in (("erect", erect), ("lying", lying)):
        made.PatientPosition = "ERECT"
        (tmp_path / f"{name}.dcm").write_bytes(encoded(made))
    films = [Film(name, path=str(tmp_path / f"{name}.dcm")) for name in ("erect", "lying")]
    films += [Film("told", path=str(tmp_path / "lying.dcm"), told={"position": "upright"}), Film("untold")]
    gone, kept = select(tmp_path, films)
    assert gone == {"lying": ("not_erect", "Recumbent", "semisyn_healthy")}
    assert dict(kept.select("image_id", "position").iter_rows()) == {"erect": "Erect", "told": "Erect", "untold": ""}


def test_films_without_a_position_where_mimics_table_is_at_hand(tmp_path):
    table = scored(
        tmp_path / "metadata.csv",
        [
            "dicom_id,PatientOrientationCodeSequence_CodeMeaning",
            "up,Erect",
            "untold,",
            "down,Recumbent",
            "strange,Erect",
        ],
    )
    films = [Film(name) for name in ("up", "untold", "down", "unlisted")]
    _, found = select(tmp_path, films, metadata=table)
    assert set(found["image_id"]) == {"up"}


# ---------------------------------------------------------------------------------------------- references


@pytest.mark.parametrize(("patients", "kept"), [(True, {"c"}), (False, {"b", "c"})])
def test_a_reference_reserves_its_patients_or_its_images(tmp_path, patients, kept):
    path = tmp_path / "boxes.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "class_name", "x_min", "y_min", "x_max", "y_max"])
        writer.writerow(["a.png", "No finding", "", "", "", ""])
        writer.writerow(["stranger", "Cardiomegaly", 1, 2, 3, 4])
    reference = {"people": {"format": "vindr", "path": str(path), "image_id": "{stem}"}}
    films = [Film("a", subject_id="p"), Film("b", subject_id="p"), Film("c", subject_id="q")]
    chosen = options(exclude_patients=patients)
    gone, found = select(tmp_path, films, chosen, reference, reference_people=str(path))
    assert set(found["image_id"]) == kept
    assert set(gone.values()) == {("in_reference", "people", "semisyn_healthy")}


# -------------------------------------------------------------------------------------------------- funnel


def test_the_funnel_accounts_for_every_image(tmp_path):
    films = [Film("a", frame="undecodable"), Film("b", frame="not_selected"), Film("c", view="AP"), Film("d")]
    films += [Film("e", organs=None), Film("f", boxes_reason="engine_failure"), Film("g", report=None)]
    select(tmp_path, films)
    gather_exclusions(
        excluded=[str(tmp_path / "excluded.parquet")],
        images=str(tmp_path / "images.parquet"),
        gathered=str(tmp_path / "all.parquet"),
    )
    select_healthy.run(
        shards=[str(tmp_path / "healthy.parquet")],
        excluded=tmp_path / "all.parquet",
        images=tmp_path / "index.parquet",
        funnel=tmp_path / "funnel.tsv",
        options=options(),
        references={},
    )
    table = read_table(tmp_path / "funnel.tsv")
    assert table.columns == list(FUNNEL)
    rows = table.to_dicts()
    assert [(row["in"], row["out"]) for row in rows] == [
        (7, 5), (5, 4), (4, 4), (4, 4), (4, 4), (4, 3), (3, 3), (3, 3), (3, 2), (2, 1), (1, 1), (1, 1), (1, 1),
    ]  # fmt: skip
    assert [row["reason"] for row in rows if row["reason"]] == [
        "not_selected 1, undecodable 1", "not_pa 1", "no_report 1", "engine_failure 1", "cut_off 1",
    ]  # fmt: skip
    assert rows[-1]["paper"] == 24_555
    assert "none is set" in rows[3]["criterion"]
    assert "does not see pneumothorax" in rows[8]["criterion"]
    assert "unknown for 1 of the pool" in rows[2]["criterion"]
    assert read_table(tmp_path / "index.parquet").columns == list(HEALTHY)


def test_the_order_of_the_rows_changes_no_byte(tmp_path):
    films = [Film(name, boxes=(("Lung Opacity", 0.1 * place),)) for place, name in enumerate("abcd")]
    for folder, given in (("one", films), ("other", films[::-1])):
        select(tmp_path / folder, given)
    for name in ("healthy.parquet", "excluded.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_an_empty_shard(tmp_path):
    gone, kept = select(tmp_path, [])
    assert not gone
    assert kept.is_empty()


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classifier": "table"}, "table.scores"),
        ({"devices": "maybe"}, "semisyn.healthy.devices is 'maybe'"),
        ({"views": []}, "semisyn.healthy.views"),
        ({"lite": {"ctr": 1.2}}, "semisyn.healthy.lite.ctr is 1.2"),
    ],
)
def test_wrong_settings_name_their_key(given, said):
    with pytest.raises(settings.SettingsError, match=said):
        settings.read({"semisyn": {"healthy": given}})


def test_the_scores_cover_findings_alone():
    assert lite.CLASSES_BY_FINDING.keys() | set(lite.UNSEEN) | {"cardiomegaly"} == FINDINGS.keys()

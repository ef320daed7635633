"""Headers: every real or generated file gets the right verdict before any pixel is decoded."""

import csv

import cv2
import numpy as np
import pytest
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset

from cohort_runs import COLUMNS, of, one, run_cohort, run_frames, write_csv
from cxr.base.hdf5 import Shard
from cxr.imaging.cohort.view import OTHER, parse_view_code, parse_view_text, read_view
from dicom_files import LOSSLESS, dataset, encoded, picture, stored_values

USUAL_PARTS = (
    "TORAX", "THORAX", "Tórax", "torax_pa", "LUNG", "LUNGS", "PULMON", "PULMONES", "PULMÃO", "POUMONS", "LUNGE",
    "TORACE", "CHESTABDOMEN", "CHESTABDPELVIS", "NECKCHEST", "PORTABLECHEST", "PORT CHEST", "CHEST PORTABLE", "HEART",
    "CHEST_PA", "CHEST PA", "chest-1view", "CHEST1", "C-CHEST", "CXR", "RIBS", "UNKNOWN", "Unspecified", "N/A", "NONE",
    "not specified", " ", "...",
)  # fmt: skip
OTHER_PARTS = (
    "KNEE", "HAND", "FOOT", "ABDOMEN", "PELVIS", "SKULL", "TSPINE", "LSPINE", "THORACIC SPINE", "CSPINE", "SHOULDER",
    "CLAVICLE", "TRIBE", "OTHER", "EXTREMITY", "NECK", "HEAD",
)  # fmt: skip


def test_every_real_dicom_gets_its_verdict(shared, tmp_path):
    folder = shared / "data/dicom"
    with open(folder / "dicom.csv", encoding="utf-8") as file:
        truth = list(csv.DictReader(file))
    rows = [(f"p{n}", f"s{n}", row["file"], str(folder / row["file"]), "") for n, row in enumerate(truth)]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(len(truth))
    verdicts = {row["file"]: "exclude" if row["file"] in result.reasons else "accept" for row in truth}
    assert verdicts == {row["file"]: row["verdict"] for row in truth}
    assert result.reasons == {
        "nih_p2_header_position_xx.dcm": "unknown_view",
        "neg_extremity_cr_mono1_j2k_lossless.dcm": "wrong_body_part",
        "neg_thorax_animal_lateral_dx_mono1.dcm": "not_frontal",
        "nih_p2_header_modality_ct.dcm": "wrong_modality",
    }
    assert set(result.accepted["view"]) == {"PA"}
    frames = {}
    for name, path in result.paths.items():
        run_frames(path, tmp_path / f"{name}.h5")
        with Shard(tmp_path / f"{name}.h5") as shard:
            frames |= {image: shard.get("image", image).astype(int) for image in shard.ids}
    assert set(frames) == set(result.accepted["image_id"])
    plain, inverted = (frames[f"rsna_cr_pa_jpegbaseline_{kind}.dcm"] for kind in ("mono2", "relabelled_mono1"))
    assert np.abs(plain + inverted - 255).max() <= 1


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({}, None),
        ({"Modality": "DX"}, None),
        ({"Modality": "CT"}, "wrong_modality"),
        ({"Modality": "OT"}, "wrong_modality"),
        ({"Modality": None}, None),  # its class says CR
        ({"Modality": None, "SOPClassUID": uid.SecondaryCaptureImageStorage}, "wrong_modality"),
        ({"BodyPartExamined": ""}, None),
        ({"BodyPartExamined": "Port Chest"}, None),
        ({"BodyPartExamined": "RIBCAGE"}, None),
        *(({"BodyPartExamined": part}, None) for part in USUAL_PARTS),
        *(({"BodyPartExamined": part}, "wrong_body_part") for part in OTHER_PARTS),
        ({"BodyPartExamined": "ABDOMEN"}, "wrong_body_part"),
        ({"ViewPosition": "AP"}, None),
        ({"ViewPosition": "LL"}, "not_frontal"),
        ({"ViewPosition": "LATERAL"}, "not_frontal"),
        ({"ViewPosition": "AP LLD"}, "not_frontal"),
        ({"ViewPosition": ""}, "unknown_view"),
        ({"ViewPosition": None}, "unknown_view"),
        ({"ViewPosition": None, "PatientPosition": "AP"}, None),
        ({"ViewPosition": None, "PatientPosition": "HFS"}, "unknown_view"),
        ({"ViewPosition": None, "SeriesDescription": "CHEST PA"}, None),
        ({"ViewPosition": None, "SeriesDescription": "Thorax lateral"}, "not_frontal"),
        ({"ViewPosition": None, "StudyDescription": "CHEST PA AND LAT"}, "unknown_view"),
        ({"ViewPosition": None, "PatientOrientation": ["A", "F"]}, "not_frontal"),
        ({"ViewPosition": None, "PatientOrientation": ["L", "F"]}, "unknown_view"),
        ({"Rows": 100, "PixelData": bytes(100 * 180)}, "too_small"),
    ],
)
def test_verdict_of_a_header(tmp_path, tags, reason):
    result = one(tmp_path, of(**tags))
    result.check_conserved(1)
    assert result.reasons == ({"i": reason} if reason else {})


def test_view_code_sequence():
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = "R-10206", "SNM3", "antero-posterior"
    header = Dataset()
    header.ViewCodeSequence = [item]
    assert read_view(header) == ("AP", "ViewCodeSequence")
    item.CodeMeaning = ""
    assert read_view(header) == ("AP", "ViewCodeSequence")
    item.CodeValue, item.CodeMeaning = "R-10236", "left lateral"
    assert read_view(header) == (OTHER, "ViewCodeSequence")


@pytest.mark.parametrize(
    ("code", "view"),
    [("pa", "PA"), ("AP Supine", "AP"), ("POSTERO_ANTERIOR", "PA"), ("Antero-posterior", "AP"), ("P-A", "PA"),
     ("LATERAL", OTHER), ("AP AXIAL", OTHER), ("LPO", OTHER), ("XX", None), ("", None), ("FRONTAL", None),
     ("AP/PA", None)],
)  # fmt: skip
def test_view_of_a_code(code, view):
    assert parse_view_code(code) == view


@pytest.mark.parametrize(
    ("text", "view"),
    [("view: PA", "PA"), ("CHEST (PORTABLE AP)", "AP"), ("XR CHEST 2 VIEWS PA/LAT", None), ("chest", None),
     ("120 ML contrast", None), ("BILATERAL RIBS AP", "AP"), ("W033 Chest LAT", OTHER), ("Thorax p.-a.", None)],
)  # fmt: skip
def test_view_of_a_description(text, view):
    assert parse_view_text(text) == view


def test_unknown_view_can_be_accepted(tmp_path):
    result = one(tmp_path, of(ViewPosition=None), unknown_view="accept")
    assert result.accepted["view"].to_list() == [""]
    assert one(tmp_path, of(ViewPosition="LL"), unknown_view="accept").reasons == {"i": "not_frontal"}


@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda syntax: syntax.name)
def test_headers_of_all_encodings(tmp_path, syntax):
    data = encoded(dataset(stored_values(picture(200, 180), 12, False), 12), syntax)
    assert one(tmp_path, data).accepted.height == 1


def test_a_deflated_bomb_is_not_inflated_for_its_header(tmp_path):
    values = np.zeros((8000, 8000), np.uint16)
    data = encoded(dataset(values, 16), uid.DeflatedExplicitVRLittleEndian)
    assert len(data) < values.nbytes / 500
    assert one(tmp_path, data).accepted.height == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"hello, this is not a picture" * 20, "not_dicom"),
        (bytes(5000), "not_dicom"),
        (bytes(128) + b"DICM", "unreadable_header"),
        (bytes(128) + b"DICM" + b"\xff" * 400, "unreadable_header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(60), "unreadable_header"),
        (b"\xff\xd8\xff" + bytes(60), "unreadable_header"),
    ],
)
def test_files_that_are_none(tmp_path, data, reason):
    result = one(tmp_path, data)
    result.check_conserved(1)
    assert result.reasons == {"i": reason}


def test_pictures_take_their_view_from_the_manifest(tmp_path):
    small, large = stored_values(picture(100, 300), 8, False), stored_values(picture(200, 300), 8, False)
    for name, values in (("a.png", large), ("b.jpg", large), ("c.png", small), ("d.png", large), ("e.png", large)):
        cv2.imwrite(str(tmp_path / name), values)
    header = ("view", *COLUMNS)
    rows = [
        ("PA", "p", "s1", "a", "a.png", ""),
        ("AP supine", "p", "s2", "b", "b.jpg", ""),
        ("PA", "p", "s3", "c", "c.png", ""),
        ("", "p", "s4", "d", "d.png", ""),
        ("Lateral", "p", "s5", "e", "e.png", ""),
        ("PA", "p", "s6", "f", "none.png", ""),
    ]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", header, rows))
    result.check_conserved(6)
    assert dict(result.accepted.select("image_id", "view").iter_rows()) == {"a": "PA", "b": "AP"}
    assert result.reasons == {"c": "too_small", "d": "unknown_view", "e": "not_frontal", "f": "missing_file"}


def test_files_of_other_makers(tmp_path):
    """Modalities of pydicom's own test files: none is a chest X-ray."""
    names = ("CT_small.dcm", "MR_truncated.dcm", "rtplan.dcm", "test-SR.dcm", "JPEG2000.dcm", "image_dfl.dcm")
    rows = [("p", f"s{n}", name, get_testdata_file(name), "") for n, name in enumerate(names)]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(len(names))
    assert set(result.reasons.values()) == {"wrong_modality"}

"""The details in the ledger name the value and the fault, and hold nothing about a patient."""

import random
import re

import cv2
import numpy as np
import pytest
from pydicom import uid

from cohort_runs import COLUMNS, of, one, run_cohort, run_frames, write_csv
from cxr.base.tables import read_table
from cxr.dicom.files import describe_error
from cxr.workflow.settings import SettingsError, read
from dicom_files import LOSSLESS, damaged, dataset, encoded, picture, stored_values

LONG = "Müller 19370420 <stehend, sehr lang>"
PATIENT = {"PatientName": "Zweistein^Albertine", "PatientID": "ZW-4711-0815", "PatientBirthDate": "19370420"}


def frames_details(result, folder) -> dict[str, str]:
    (path,) = result.paths.values()
    run_frames(path, folder / "0.h5")
    return dict(read_table(folder / "0.excluded.parquet").select("image_id", "detail").iter_rows())


@pytest.mark.parametrize(
    ("tags", "detail"),
    [
        ({"ViewPosition": None}, "ViewPosition and the other view fields are empty"),
        ({"ViewPosition": "XX"}, "not understood: ViewPosition is XX"),
        ({"ViewPosition": "FRONTAL", "PatientPosition": "HFS"},
         "not understood: ViewPosition is FRONTAL; PatientPosition is HFS"),
        # a description may hold anything: it is not quoted
        ({"ViewPosition": None, "StudyDescription": "Zweistein 2 views", "SeriesDescription": "THORAX"},
         "not understood: SeriesDescription, StudyDescription"),
    ],
)  # fmt: skip
def test_an_unknown_view_is_told_with_what_was_not_understood(tmp_path, tags, detail):
    result = one(tmp_path, of(**tags))
    assert result.reasons == {"i": "unknown_view"}
    assert result.details == {"i": detail}


def test_a_view_of_the_manifest_that_is_not_understood(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), stored_values(picture(200, 200), 8, False))
    (tmp_path / "b.dcm").write_bytes(of(ViewPosition=None))
    (tmp_path / "c.dcm").write_bytes(of(ViewPosition="PA"))
    (tmp_path / "d.png").write_bytes((tmp_path / "a.png").read_bytes())
    rows = [("p", "s", "a", "a.png", "", "frontal"), ("p", "s", "b", "b.dcm", "", LONG),
            ("p", "s", "c", "c.dcm", "", "stehend"), ("p", "s", "d", "d.png", "", "")]  # fmt: skip
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", (*COLUMNS, "view"), rows))
    assert result.accepted.select("image_id", "view").rows() == [("c", "PA")]  # its header tells it
    assert result.details == {
        "a": "the table's 'frontal' is not understood; the file: a PNG or JPEG file does not state a view",
        "b": "the table's 'Muller … stehend sehr la…' is not understood; the file: ViewPosition and the other"
        " view fields are empty",
        "d": "a PNG or JPEG file does not state a view",
    }


def test_undecodable_pixels_are_told_in_the_decoders_words(tmp_path):
    made = dataset(stored_values(picture(200, 180), 12, False), 12)
    short = dataset(stored_values(picture(200, 180), 12, False), 12)
    short.PixelData = short.PixelData[:-1000]
    untold = dataset(stored_values(picture(200, 180), 12, False), 12, PhotometricInterpretation=None)
    broken = bytearray(encoded(made, uid.RLELossless))
    broken[broken.rindex(b"\xfe\xff\x00\xe0") + 8] = 9  # the number of segments
    files = {"short": encoded(short), "untold": encoded(untold), "broken": bytes(broken)}
    rows = []
    for name, data in files.items():
        (tmp_path / f"{name}.dcm").write_bytes(data)
        rows.append(("p", name, name, f"{name}.dcm", ""))
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows), shards=1)
    details = frames_details(result, tmp_path)
    assert re.search(
        r"^Explicit VR Little Endian: The number of bytes of pixel data is less than expected \(71000 vs 72000",
        details["short"],
    )
    assert "Missing required element" in details["untold"]
    assert "Photometric Interpretation" in details["untold"]
    assert re.search(r"^RLE Lossless: .* segments", details["broken"])


def test_headers_that_cannot_be_read_are_told_in_words(tmp_path):
    cut = of()[:140]
    assert one(tmp_path, cut).details["i"] != ""
    for data in (cut, b"\x89PNG\r\n\x1a\n" + bytes(60), bytes(128) + b"DICM" + b"\xff" * 400):
        result = one(tmp_path, data)
        assert result.reasons == {"i": "unreadable_header"}
        assert len(result.details["i"].split()) > 2
        assert "a.dcm" not in result.details["i"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("could not convert string to float: 'Doe^John'"), "could not convert string to float: '…'"),
        (ValueError("invalid literal for int(): b'Doe'"), "invalid literal for int(): '…'"),
        (AttributeError("'Dataset' object has no attribute 'BitsStored'"),
         "'Dataset' object has no attribute 'BitsStored'"),
        (AttributeError("'Doe' object has no attribute 'John'"), "'…' object has no attribute '…'"),
        (OSError("cannot identify image file '/data/Doe/1.png'"), "cannot identify image file '…'"),
        (OSError("cannot read /data/Doe/1.png: truncated"), "cannot read … truncated"),
        (ValueError("It doesn't match, it isn't \"O'Hara's\" own"), "It doesn't match, it isn't '…' own"),
        (ValueError("Name Doe^John of 1.2.276.0.7230010.3.1 in 1.2.840.10008.1.2"), "Name … of … in 1.2.840.10008.1.2"),
        (EOFError(), "the data end too early"),
        (KeyError("Doe"), "the decoder failed with KeyError"),
        (RuntimeError("Unable to decode as exceptions were raised by all available plugins:\n  a: x\n  b: bad marker"),
         "b: bad marker"),
        (RuntimeError("long " * 60), "long " * 32 + "…"),
    ],
)  # fmt: skip
def test_what_an_error_says_without_what_may_be_a_patients(error, sentence):
    assert describe_error(error) == sentence


def test_no_detail_of_a_damaged_file_holds_a_patient(tmp_path):
    """For 400 damaged files of one patient, no detail of cohort or frames holds a word of the header or path."""
    rng, rows = random.Random(5), []
    folder = tmp_path / "Zweistein-Albertine"
    folder.mkdir()
    values = stored_values(picture(200, 180), 12, False)
    sources = [encoded(dataset(values, 12, **PATIENT), syntax) for syntax in LOSSLESS]
    for number in range(400):
        data = damaged(sources[number % len(sources)], ["cut", "bits", "header", "header"][number % 4], rng)
        (folder / f"{number}.dcm").write_bytes(data)
        rows.append(("p", f"s{number}", f"i{number:03d}", f"{number}.dcm", ""))
    result = run_cohort(tmp_path, manifest=write_csv(folder / "m.csv", COLUMNS, rows), shards=1)
    details = [*result.details.values(), *frames_details(result, tmp_path).values()]
    assert len(details) > 150
    words = re.compile("zweistein|albertine|4711|0815|1937|/", re.IGNORECASE)
    assert [detail for detail in details if words.search(detail)] == []
    assert [detail for detail in details if re.search(r"\b[A-Z]\w+Error\b", detail)] == []


# ------------------------------------------------------------------------------------ words in any case


@pytest.mark.parametrize(
    ("tags", "settings", "reason"),
    [
        ({"Modality": "DX"}, {"modalities": ["dx"]}, None),
        ({"Modality": "CR"}, {"modalities": [" Dx"]}, "wrong_modality"),
        ({"BodyPartExamined": "Chest"}, {"body_parts": ["chest"]}, None),
        ({"BodyPartExamined": "PORT CHEST"}, {"body_parts": ["port chest"]}, None),
        ({"BodyPartExamined": "TORAX"}, {"body_parts": ["tórax"]}, None),
        ({"BodyPartExamined": "KNEE"}, {"body_parts": ["chest"]}, "wrong_body_part"),
    ],
)
def test_words_of_the_settings_match_in_any_case(tmp_path, tags, settings, reason):
    result = one(tmp_path, of(**tags), **settings)
    assert result.reasons == ({"i": reason} if reason else {})


@pytest.mark.parametrize(
    ("given", "where", "value"),
    [
        ({"cohort": {"modalities": ["dx", "Cr "]}}, "cohort.modalities", ["DX", "CR"]),
        ({"cohort": {"body_parts": ["chest"]}}, "cohort.body_parts", ["CHEST"]),
        ({"cohort": {"views": ["ap", "Pa"]}}, "cohort.views", ["AP", "PA"]),
        ({"cohort": {"source": "Manifest", "manifest": "m.csv"}}, "cohort.source", "manifest"),
        ({"boxes": {"excluded_classes": ["lung opacity", "Nodule/mass"]}}, "boxes.excluded_classes",
         ["Lung Opacity", "Nodule/Mass"]),
        ({"dataset": {"global_share": {"Opacity": 0.5}}}, "dataset.global_share", {"opacity": 0.5}),
        ({"review": {"split": "Validate"}}, "review.split", "validate"),
        ({"reports": {"engine": "vLLM"}}, "reports.engine", "vllm"),
        ({"agreement": {"references": {"a": {"format": "MS-CXR", "path": "x", "classes": {"B": "Edema"}}}}},
         "agreement.references", None),
    ],
)  # fmt: skip
def test_words_of_the_settings_are_read_in_any_case(given, where, value):
    section, name = where.split(".")
    found = getattr(getattr(read(given), section), name)
    if value is None:
        assert (found["a"].format, found["a"].classes) == ("ms_cxr", {"B": "edema"})
    elif isinstance(value, dict):
        assert value.items() <= found.items()
    else:
        assert found == value


def test_a_word_that_yaml_takes_for_a_switch(tmp_path):
    """YAML reads no as false, but the word in the file is refused or accepted."""
    path = tmp_path / "mine.yaml"
    path.write_text("cohort:\n  unknown_view: no\n")
    with pytest.raises(SettingsError, match=r"^cohort\.unknown_view is 'no'.*exclude.*accept"):
        read({"cohort": {"unknown_view": False}}, [path])
    path.write_text("cohort:\n  body_parts: [chest, no]\n")
    assert read({"cohort": {"body_parts": ["chest", False]}}, [path]).cohort.body_parts == ["CHEST", "NO"]


def test_a_picture_without_pixels_to_tell_apart(tmp_path):
    (tmp_path / "x").mkdir()
    result = one(tmp_path, encoded(dataset(np.zeros((200, 180), np.uint16), 12)))
    assert frames_details(result, tmp_path) == {"i": ""}

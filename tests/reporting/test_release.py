"""The package of a dataset version: its content, the withheld data, and that other tools can read it."""

import hashlib
import io
import json
import platform
import re
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pydicom
import pytest
import yaml
from PIL import Image
from pydicom.sr._concepts_dict import concepts

from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.lesions import LESION_TYPES
from cxr.base.tables import read_lines, write_lines
from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS
from cxr.ils.dataset.mimic_ils import read_release
from cxr.reporting.release import parquet
from cxr.reporting.release.withheld import Withheld
from cxr.workflow.code_digest import code_digest
from cxr.workflow.params import check_files, stage_options
from cxr.workflow.plan_reporting import without_paths
from cxr.workflow.settings import SettingsError, read
from declared_tables import differing
from release_package import LONG_KEY, files, identifiers, make, rows_of_pixels, sentences, unpacked
from table_columns import TABLES

SPLITS = {"train": "train", "validate": "validation", "test": "test"}
NAMED = {"name": "chests", "version": "2.1.0", "date": "2026-03-04", "licence": "CC-BY-4.0", "creator": "Someone"}
READERS = {"Hugging Face datasets": "datasets", "COCO": "pycocotools", "DICOM Segmentation": "pydicom", "HDF5": "h5py",
           "The authors' layout": "cv2"}  # fmt: skip


pytestmark = pytest.mark.xdist_group("release")


@pytest.fixture(scope="module")
def run(workflow_run, tmp_path_factory) -> Path:
    """A working directory with the slice's results, in which `snakemake release` was run; its own files are links."""
    directory = tmp_path_factory.mktemp("release") / "run"
    shutil.copytree(workflow_run, directory, copy_function=lambda old, new: Path(new).hardlink_to(old),
                    ignore=shutil.ignore_patterns(".snakemake", "records", "mine.yaml", "figures", "logs"))  # fmt: skip
    for part in (".snakemake", "results/records"):  # Snakemake writes into their files
        shutil.copytree(workflow_run / part, directory / part)
    snakemake(write_settings(directory, SLICE | {"release": NAMED}), "release")
    return directory


@pytest.fixture(scope="module")
def package(run) -> Path:
    return run / "results/release/default"


@pytest.fixture(scope="module")
def codes() -> dict:
    boxes = ("cxr.imaging.boxes.detect_boxes", "cxr.imaging.boxes.lite")
    modules = {"cohort": ("cxr.imaging.cohort.make_cohort",), "boxes": boxes}
    modules["dataset"] = ("cxr.ils.dataset.make_pairs",)
    return {stage: code_digest("job.py", *named) for stage, named in modules.items()}


@pytest.fixture(scope="module")
def layout(run) -> Path:
    return run / "results/dataset/default/layout"


@pytest.fixture(scope="module")
def nothing_withheld(run, layout, codes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("open") / "out"
    with mock.patch.object(parquet, "PAIRS_PER_FILE", 8):
        return make(run, out, codes=codes, layout=layout, withhold=[], coco_pixels="original")


@pytest.fixture(scope="module")
def all_withheld(run, layout, codes, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("closed")
    (folder / "key").write_text(LONG_KEY)
    return make(run, folder / "out", codes=codes, layout=layout, withhold=True, salt=str(folder / "key"))


def dataset(run: Path, split: str) -> list[dict]:
    return list(read_lines(run / f"results/dataset/default/{split}.jsonl"))


def stored(run: Path) -> dict[str, np.ndarray]:
    masks = {}
    for path in run.glob("results/masks/default/*.h5"):
        with Shard(path, key="mask_id") as shard:
            masks |= {name: shard.get("mask", name) for name in shard.ids}
    return masks


def pairs_of(package: Path, split: str) -> list[dict]:
    return pl.read_parquet(package / f"data/{SPLITS[split]}-*.parquet").to_dicts()


def test_the_package_of_a_run_is_whole_and_the_same_to_the_byte(run, package, layout, codes, tmp_path):
    held = files(package)
    tops = {name.split("/")[0] for name in held}
    assert tops == {
        "README.md", "DATASHEET.md", "SHA256SUMS", "croissant.json", "ro-crate-metadata.json", "data", "images", "coco",
        "dicom_seg", "authors",
    }  # fmt: skip
    sums = [line.split("  ") for line in held["SHA256SUMS"].decode().splitlines()]
    assert [name for _, name in sums] == sorted(held.keys() - {"SHA256SUMS"})
    assert all(hashlib.sha256(held[name]).hexdigest() == digest for digest, name in sums)
    # another process, another folder
    assert files(make(run, tmp_path / "again", codes=codes, **NAMED)) == held
    everything = b"\n".join(unpacked(package).values())
    for word in (str(run), str(ROOT), platform.node(), "results/phantom"):
        assert word.encode() not in everything, word
    assert not list(run.glob("results/release/**/.*.part"))


def test_a_finished_release_has_nothing_to_do(run, package, dry_run):
    assert dry_run(run, "release") == {}


@pytest.mark.parametrize("name", ["package", "all_withheld"])
def test_no_report_text_and_no_pixel_is_in_it(run, name, request):
    everything = unpacked(request.getfixturevalue(name))
    text = " ".join(b"\n".join(everything.values()).decode("utf-8", "replace").replace("\\n", " ").split())
    assert [sentence for sentence in sentences(run) if sentence in text] == []
    rows = rows_of_pixels(run)
    assert not any(row in data for data in everything.values() for row in rows)


def test_the_same_search_finds_them_where_nothing_is_withheld(run, nothing_withheld):
    everything = unpacked(nothing_withheld)
    text = " ".join(b"\n".join(everything.values()).decode("utf-8", "replace").replace("\\n", " ").split())
    used = {" ".join(line["section_content"].split()) for split in SPLITS for line in dataset(run, split)}
    assert used <= {sentence for sentence in sentences(run) if sentence in text}
    rows = rows_of_pixels(run)
    images = {image_id for split in SPLITS for image_id in [line["image_id"] for line in dataset(run, split)]}
    shown = [data for name, data in everything.items() if re.match(r"images/.*:image:", name)]
    assert len(shown) == len(images)
    assert all(any(row in data for row in rows) for data in shown)


def test_no_identifier_is_in_it_where_they_are_withheld(run, package, all_withheld):
    names = identifiers(run)
    text = b"\n".join(unpacked(all_withheld).values())
    assert [name for name in names if name.encode() in text] == []
    assert LONG_KEY.encode() not in text
    assert not (all_withheld / "dicom_seg").exists()
    open_text = b"\n".join(unpacked(package).values())
    used = {line[name] for line in dataset(run, "train") for name in ("subject_id", "study_id", "image_id", "mask_id")}
    assert all(name.encode() in open_text for name in used - {None})


def content_of_lines(lines: list[dict], names: tuple[str, ...]) -> list[tuple]:
    """What lines say beside their names, and for each name the first pair of its study or subject that has it."""
    first: dict[tuple, str] = {}
    for line in sorted(lines, key=lambda line: (line["study_id"], line["pair_id"])):
        for name in names:
            first.setdefault((name, line[name]), line["instruction"] + line["answer"])
    return [
        (line["instruction"], line["answer"], *(first[name, line[name]] for name in names if name != "subject_id"))
        for line in lines
    ]


def test_withheld_identifiers_are_one_to_one_and_in_no_telling_order(run, all_withheld):
    lines, shown = dataset(run, "train"), pairs_of(all_withheld, "train")
    names = ("subject_id", "study_id", "image_id", "mask_id")
    assert sorted(content_of_lines(lines, names)) == sorted(content_of_lines(shown, names))
    assert not {line[name] for line in lines for name in names} - {None} & {
        pair[name] for pair in shown for name in names
    }
    studies = list(dict.fromkeys(pair["study_id"] for pair in shown))
    assert studies == sorted(studies)
    assert all(pair["pair_id"].startswith(f"{pair['study_id']}_") for pair in shown)
    held = json.loads((all_withheld / "authors/mimic_ils_instruction_answer.json").read_text())
    assert list(held["train"]) == studies
    assert sorted(pair["pair_id"] for pair in shown) == sorted(
        pair["pair_id"]
        for study in held["train"].values()
        for found in study["instruction_answer_pairs"].values()
        for pair in found
    )
    coco = json.loads((all_withheld / "coco/train.json").read_text())
    assert [image["study_id"] for image in coco["images"]] == studies


@pytest.mark.parametrize("split", SPLITS)
def test_parquet_holds_the_lines_and_their_masks(run, package, nothing_withheld, split):
    masks, lines = stored(run), dataset(run, split)
    for folder, without in ((package, {"split", "section_content", "quote"}), (nothing_withheld, {"split"})):
        rows = pairs_of(folder, split)
        pictures = [row.pop("mask") for row in rows]
        assert rows == [{name: value for name, value in line.items() if name not in without} for line in lines]
        for line, picture in zip(lines, pictures, strict=True):
            if line["seg"]:
                drawn = np.frombuffer(_decoded(picture["bytes"]), np.uint8).reshape(512, 512) > 0
                np.testing.assert_array_equal(drawn, masks[line["mask_id"]])
            else:
                assert picture is None
    files_of = sorted(path.name for path in nothing_withheld.glob(f"data/{SPLITS[split]}-*"))
    number = -(-len(lines) // 8)
    assert files_of == [f"{SPLITS[split]}-{part:05d}-of-{number:05d}.parquet" for part in range(number)]


@pytest.mark.parametrize(("name", "withheld"), [("package", 3), ("nothing_withheld", 0)])
def test_parquet_has_its_declared_columns_less_what_is_withheld(name, withheld, request):
    folder, declared, found = request.getfixturevalue(name), 0, 0
    for part in ("data", "images"):
        path = f"results/release/{{thresholds}}/{part}/{{split}}-*.parquet"
        files = sorted((folder / part).glob("*.parquet"))
        assert files
        assert [differing(file, path) for file in files] == [""] * len(files)
        declared, found = declared + len(TABLES[path]), found + len(pl.read_parquet_schema(files[0]))
    assert declared - found == withheld


def _decoded(png: bytes) -> bytes:
    with Image.open(io.BytesIO(png)) as image:  # another decoder than the one that wrote it
        return np.asarray(image.convert("L")).tobytes()


def units_of(lines: list[dict]) -> set[tuple]:
    return {(line["mask_id"], line["target"], tuple(line["location"])) for line in lines if line["seg"]}


def test_coco_is_read_by_its_own_tools(run, package):
    mask_tools = pytest.importorskip("pycocotools.mask", reason="pycocotools is not installed")
    masks = stored(run)
    for split, name in SPLITS.items():
        held, lines = json.loads((package / f"coco/{name}.json").read_text()), dataset(run, split)
        assert {category["id"]: category["name"] for category in held["categories"]} == dict(enumerate(LESIONS, 1))
        images = {image["id"]: image for image in held["images"]}
        assert [Path(image["file_name"]).stem for image in held["images"]] == list(
            dict.fromkeys(line["image_id"] for line in lines)
        )
        seen = set()
        for each in held["annotations"]:
            mask = mask_tools.decode(each["segmentation"]).astype(bool)
            np.testing.assert_array_equal(mask, masks[each["mask_id"]])
            assert each["area"] == mask_tools.area(each["segmentation"])
            assert each["bbox"] == mask_tools.toBbox(each["segmentation"]).tolist()
            image = images[each["image_id"]]
            assert mask.shape == (image["height"], image["width"]) == (512, 512)
            target = LESIONS[each["category_id"] - 1]
            seen.add((each["mask_id"], target, tuple(each["location"])))
            unit = each["mask_id"], target, tuple(each["location"])
            assert each["pair_ids"] == [line["pair_id"] for line in lines if units_of([line]) == {unit}]
        assert seen == units_of(lines)
        assert len(seen) == len(held["annotations"])


def in_original(mask: np.ndarray, affine: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The frame's pixel under the centre of each of the image's own pixels."""
    x = np.floor((np.arange(shape[1]) + 0.5 - affine[0, 2]) / affine[0, 0]).astype(int)
    y = np.floor((np.arange(shape[0]) + 0.5 - affine[1, 2]) / affine[1, 1]).astype(int)
    inside = ((y >= 0) & (y < mask.shape[0]))[:, None] & ((x >= 0) & (x < mask.shape[1]))[None]
    return mask[np.clip(y, 0, mask.shape[0] - 1)[:, None], np.clip(x, 0, mask.shape[1] - 1)[None]] & inside


def geometry(run: Path) -> dict[str, tuple]:
    found = {}
    for path in run.glob("results/frames/*.h5"):
        with Shard(path) as shard:
            for name in shard.ids:
                found[name] = shard.get("to_original", name), tuple(shard.get("original_shape", name).tolist())
    return found


def test_coco_in_the_pixels_of_the_images(run, nothing_withheld):
    mask_tools = pytest.importorskip("pycocotools.mask", reason="pycocotools is not installed")
    masks, places = stored(run), geometry(run)
    held = json.loads((nothing_withheld / "coco/train.json").read_text())
    images = {image["id"]: image for image in held["images"]}
    for each in held["annotations"]:
        image = images[each["image_id"]]
        affine, shape = places[Path(image["file_name"]).stem]
        assert (image["height"], image["width"]) == shape == (image["original_height"], image["original_width"])
        np.testing.assert_array_equal(image["to_original"], affine)
        drawn = mask_tools.decode(each["segmentation"]).astype(bool)
        assert (drawn != in_original(masks[each["mask_id"]], affine, shape)).mean() < 1e-4


def test_dicom_segmentations_by_the_rules_of_the_standard(run, package):
    lines = [line for split in SPLITS for line in dataset(run, split)]
    masks, places, codes = stored(run), geometry(run), yaml.safe_load((ROOT / "resources/codes.yaml").read_text())
    code_by_lesion = {lesion.name: lesion.code for lesion in LESION_TYPES}
    cohort = pl.concat(
        [pl.read_parquet(path) for path in run.glob("results/cohort/0*.parquet") if "." not in path.stem]
    )
    sources = dict(cohort.select("image_id", "path").iter_rows())
    positive = {line["image_id"]: line for line in lines if line["seg"]}
    with Shard(run / "results/masks/default/00.h5", key="mask_id") as shard:
        version = shard.attrs["code_digest"]
    found = {path.stem: path for path in (package / "dicom_seg").rglob("*.dcm")}
    assert found.keys() == positive.keys()
    for image_id, path in found.items():
        line, seg = positive[image_id], pydicom.dcmread(path)
        below = path.relative_to(package / "dicom_seg").parts
        assert below == (line["subject_id"][:3], line["subject_id"], line["study_id"], f"{image_id}.dcm")
        source = pydicom.dcmread(run / sources[image_id], force=True)
        assert seg.file_meta.TransferSyntaxUID == "1.2.840.10008.1.2.1.99"  # deflated
        assert (seg.SOPClassUID, seg.Modality) == ("1.2.840.10008.5.1.4.1.1.66.4", "SEG")
        assert seg.StudyInstanceUID == source.StudyInstanceUID
        assert seg.SeriesInstanceUID != source.SeriesInstanceUID
        (series,) = seg.ReferencedSeriesSequence
        (instance,) = series.ReferencedInstanceSequence
        assert series.SeriesInstanceUID == source.SeriesInstanceUID
        assert instance.ReferencedSOPClassUID == source.SOPClassUID
        assert instance.ReferencedSOPInstanceUID == source.SOPInstanceUID
        assert (seg.Rows, seg.Columns) == (source.Rows, source.Columns) == places[image_id][1]
        assert seg.PatientID == source.get("PatientID", "")
        patient = (
            "PatientName",
            "PatientBirthDate",
            "PatientSex",
            "PatientAge",
            "StudyDate",
            "AccessionNumber",
            "StudyID",
        )
        assert not any(seg.get(name) for name in patient)
        assert (seg.ContentDate, seg.ContentTime) == ("20260304", "000000")
        bits = np.unpackbits(np.frombuffer(seg.PixelData, np.uint8), bitorder="little")
        frames = bits[: seg.NumberOfFrames * seg.Rows * seg.Columns].reshape(-1, seg.Rows, seg.Columns).astype(bool)
        drawn: dict[int, np.ndarray] = {}
        for number, groups in enumerate(seg.PerFrameFunctionalGroupsSequence):
            shared = seg.SharedFunctionalGroupsSequence[0]
            held = groups if "SegmentIdentificationSequence" in groups else shared
            segment = held.SegmentIdentificationSequence[0].ReferencedSegmentNumber
            assert segment not in drawn
            drawn[segment] = frames[number]
        seen = set()
        for segment in seg.SegmentSequence:
            target, place = segment.SegmentLabel.split(": ")
            unit = (segment.TrackingID, target, tuple(place.split(", ")))
            seen.add(unit)
            kind = segment.SegmentedPropertyTypeCodeSequence[0]
            assert [kind.CodeValue, kind.CodingSchemeDesignator, kind.CodeMeaning] == list(code_by_lesion[target])
            for region, location in zip(segment.AnatomicRegionSequence, unit[2], strict=True):
                side, _, part = location.partition(" ") if location != "heart" else ("", "", "heart")
                assert region.CodeValue == codes["anatomy"][part]["code"][0]
                sides = [each.CodeValue for each in region.get("AnatomicRegionModifierSequence", [])]
                assert sides == ([codes["sides"][side]["code"][0]] if side else [])
            assert segment.SegmentAlgorithmType == "AUTOMATIC"
            assert segment.SegmentationAlgorithmIdentificationSequence[0].AlgorithmName == "cxr-ils"
            assert segment.SegmentationAlgorithmIdentificationSequence[0].AlgorithmVersion == version
            wanted = in_original(masks[segment.TrackingID], *places[image_id])
            assert (drawn[segment.SegmentNumber] != wanted).mean() < 1e-4
            assert drawn[segment.SegmentNumber].any()
        assert seen == units_of([line for line in lines if line["image_id"] == image_id])


def test_the_codes_are_those_of_the_standard_where_it_has_them():
    held = yaml.safe_load((ROOT / "resources/codes.yaml").read_text())
    entries = [held[name] for name in ("lesion", "category", "algorithm")]
    entries += [entry for part in ("anatomy", "sides") for entry in held[part].values()]
    entries += [{"code": lesion.code, "source": lesion.code_source} for lesion in LESION_TYPES]
    assert {location.partition(" ")[2] for location in VALID_LOCATIONS} | {"heart"} == held["anatomy"].keys()
    for entry in entries:
        value, scheme, meaning = entry["code"]
        if entry["source"].startswith("CID "):
            number = int(entry["source"].removeprefix("CID "))
            places = [
                (told, cids)
                for name in concepts[scheme].values()
                for code, (told, cids) in name.items()
                if code == value
            ]
            assert any(number in cids and told == meaning for told, cids in places), entry
        else:
            assert (entry["source"], scheme) == ("SNOMED CT", "SCT")
            assert _verhoeff(value), f"{value} is no SNOMED CT identifier"


def _verhoeff(number: str) -> bool:
    """The check digit that every identifier of SNOMED CT ends with."""
    swap = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)
    check = 0
    for place, digit in enumerate(int(each) for each in reversed(number)):
        for _ in range(place % 8):
            digit = swap[digit]
        check = _dihedral(check, digit)
    return check == 0


def _dihedral(a: int, b: int) -> int:
    if a < 5:
        return (a + b) % 5 if b < 5 else 5 + (a + b) % 5
    return 5 + (a - b) % 5 if b < 5 else (a - b) % 5


def test_an_image_that_was_no_dicom_has_no_segmentation(run, layout, codes, tmp_path):
    image = sorted(path.stem for path in (run / "results/release/default/dicom_seg").rglob("*.dcm"))[0]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    (tmp_path / "cohort").mkdir()
    for path in run.glob("results/cohort/0?.parquet"):
        table = pl.read_parquet(path)
        path_of = pl.when(pl.col("image_id") == image).then(pl.lit(str(tmp_path / "a.png"))).otherwise(pl.col("path"))
        table.with_columns(path=path_of).write_parquet(tmp_path / "cohort" / path.name)
    made = make(run, tmp_path / "out", codes=codes, layout=layout, cohort=tmp_path / "cohort")
    assert image not in {path.stem for path in (made / "dicom_seg").rglob("*.dcm")}
    assert "| the image is not a DICOM file | 1 |" in (made / "DATASHEET.md").read_text()


def test_croissant_is_valid_and_its_records_are_the_pairs(run, package):
    croissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    held = croissant.Dataset(package / "croissant.json")
    assert not held.metadata.ctx.issues.errors
    assert (held.metadata.name, str(held.metadata.version)) == ("chests", "2.1.0")
    records = list(held.records("pairs"))
    ids = sorted(line["pair_id"] for split in SPLITS for line in dataset(run, split))
    assert sorted(record["pairs/pair_id"].decode() for record in records) == ids
    text = json.loads((package / "croissant.json").read_text())
    for each in text["distribution"]:
        if each["@type"] == "cr:FileObject":
            assert hashlib.sha256((package / each["contentUrl"]).read_bytes()).hexdigest() == each["sha256"]


def test_the_crate_has_what_its_specification_wants(run, package):
    held = json.loads((package / "ro-crate-metadata.json").read_text())
    assert held["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {each["@id"]: each for each in held["@graph"]}
    assert len(entities) == len(held["@graph"])
    descriptor = entities["ro-crate-metadata.json"]
    assert descriptor["@type"] == "CreativeWork"
    assert (descriptor["about"], descriptor["conformsTo"]) == ({"@id": "./"}, {"@id": "https://w3id.org/ro/crate/1.1"})
    root = entities["./"]
    assert root["@type"] == "Dataset"
    assert all(root[name] for name in ("name", "description", "datePublished", "license", "hasPart"))
    for part in root["hasPart"]:
        path = package / part["@id"]
        assert path.is_dir() if entities[part["@id"]]["@type"] == "Dataset" else path.is_file(), path

    def references(value):
        if isinstance(value, dict):
            yield from [value["@id"]] if value.keys() == {"@id"} else references(list(value.values()))
        elif isinstance(value, list):
            yield from (each for inner in value for each in references(inner))

    named = {name for each in held["@graph"] for name in references(each)}
    assert named - {"https://w3id.org/ro/crate/1.1"} <= entities.keys()
    action = entities["#run"]
    assert (action["@type"], action["instrument"]) == ("CreateAction", {"@id": "#workflow"})
    assert action["result"] == [{"@id": "./"}]
    settings = {each["name"]: json.loads(each["value"]) for each in held["@graph"] if each["@type"] == "PropertyValue"}
    assert (settings["dataset.kinds"], settings["cohort.shards"], settings["cohort.manifest"]) == ("strict", 3, "")
    with Shard(run / "results/organs/00.h5") as shard:
        assert entities["#stage-organs"]["softwareVersion"] == shard.attrs["code_digest"]
    assert "engine: lite" in entities["#stage-organs"]["description"]
    assert "onnxruntime==" in entities["#stage-organs"]["softwareRequirements"]
    for stage in ("cohort", "boxes", "dataset"):
        assert re.fullmatch("[0-9a-f]{16}", entities[f"#stage-{stage}"]["softwareVersion"])


def test_the_datasheet_counts_what_is_there(run, package):
    text = (package / "DATASHEET.md").read_text()
    assert text.startswith("# Datasheet: chests 2.1.0\n\nMade by Someone, 2026-03-04. Licence: CC-BY-4.0.")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    for split in SPLITS:
        lines = dataset(run, split)
        numbers = [len(lines), *(len({line[name] for line in lines} - {None}) for name in
                                 ("study_id", "subject_id", "image_id", "mask_id"))]  # fmt: skip
        assert [split, *map(str, numbers)] in rows
    for lesion in LESIONS:
        numbers = [
            sum(line["target"] == lesion and line["seg"] == sign for line in dataset(run, split))
            for split in SPLITS
            for sign in (True, False)
        ]
        assert [lesion, *map(str, numbers)] in rows
    excluded = pl.concat(
        [pl.read_parquet(path).select("stage", "reason") for path in run.glob("results/*/excluded.parquet")]
    )
    assert len(excluded)
    for stage, reason, number in excluded.group_by("stage", "reason").len().iter_rows():
        assert [stage, reason, str(number)] in [found[:3] for found in rows]
    assert ["general", "0.1", "0.25", "0.2", "0.2", "0.1"] in rows
    assert "seed 2026" in text
    assert "90.1 %" in text
    assert "one source cohort" in text.casefold()
    assert "`anomaly/lite.onnx`" in text
    assert hashlib.sha256((ROOT / "resources/organs/lite.onnx").read_bytes()).hexdigest() in text


def test_a_reviewed_test_split_leaves_its_other_pairs_out_everywhere(run, layout, codes, tmp_path):
    test = dataset(run, "test")
    kept = [line for line in test if line["seg"]][1:] + [line for line in test if not line["seg"]][:2]
    write_lines(tmp_path / "test.jsonl", kept)
    made = make(run, tmp_path / "out", codes=codes, layout=layout, test=str(tmp_path / "test.jsonl"))
    ids = {line["pair_id"] for line in kept}
    assert {row["pair_id"] for row in pairs_of(made, "test")} == ids
    assert pairs_of(made, "train") == pairs_of(run / "results/release/default", "train")
    assert {line["pair_id"] for line, _ in read_release(made / "authors") if line["split"] == "test"} == ids
    coco = json.loads((made / "coco/test.json").read_text())
    assert {name for each in coco["annotations"] for name in each["pair_ids"]} == {
        line["pair_id"] for line in kept if line["seg"]
    }
    assert "release.test" in (made / "DATASHEET.md").read_text()
    (tmp_path / "wrong.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(UserError, match=r"release\.test"):
        make(run, tmp_path / "wrong", codes=codes, layout=layout, test=str(tmp_path / "wrong.jsonl"))


def test_a_split_without_pairs_has_no_file_and_the_card_does_not_name_it(run, layout, codes, tmp_path):
    write_lines(tmp_path / "none.jsonl", [])
    made = make(run, tmp_path / "out", codes=codes, layout=layout, test=str(tmp_path / "none.jsonl"))
    head = yaml.safe_load((made / "README.md").read_text().split("---\n")[1])
    assert [split["split"] for split in head["configs"][0]["data_files"]] == ["train", "validation"]
    assert not list(made.glob("data/test-*"))
    assert json.loads((made / "coco/test.json").read_text())["images"] == []


def test_the_card_names_the_layouts_that_are_there(run, package, codes, tmp_path):
    (tmp_path / "key").write_text(LONG_KEY)
    least = make(run, tmp_path / "out", codes=codes, layout="", withhold=["ids"], salt=str(tmp_path / "key"))
    for folder, there in ((package, True), (least, False)):
        for name in ("authors/", "dicom_seg/"):
            assert (folder / name).is_dir() == there
            for text in ("README.md", "ro-crate-metadata.json"):
                assert (name in (folder / text).read_text()) == there, (text, name)
        assert "`data/`, `images/`" in (folder / "README.md").read_text()


def test_the_authors_layout_reads_back_as_the_same_pairs(run, package, nothing_withheld):
    for folder, texts in ((package, False), (nothing_withheld, True)):
        back = {line["pair_id"]: (line, path) for line, path in read_release(folder / "authors")}
        lines = [line for split in SPLITS for line in dataset(run, split)]
        assert back.keys() == {line["pair_id"] for line in lines}
        for line in lines:
            read_line, path = back[line["pair_id"]]
            same = ("study_id", "subject_id", "image_id", "split", "instruction", "answer", "target", "location", "seg")
            assert {name: read_line[name] for name in same} == {name: line[name] for name in same}
            assert read_line["section_content"] == (line["section_content"] if texts else "")
            assert (path is not None and path.is_file()) == line["seg"]


def blocks() -> dict[str, str]:
    text = (ROOT / "docs/how-to/load.md").read_text()
    found = {}
    for section in text.split("\n## ")[1:]:
        if code := re.search(r"```python\n(.*?)```", section, flags=re.S):
            found[section.splitlines()[0]] = code.group(1)
    return found


def test_the_page_of_readers_has_those_that_are_tested():
    assert blocks().keys() == READERS.keys()


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_the_documentation_works_as_written(run, package, reader, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("USE_TORCH", "0")
    monkeypatch.chdir(run)
    pytest.importorskip(READERS[reader], reason=f"{READERS[reader]} is not installed")
    names: dict = {}
    exec(compile(blocks()[reader], "docs/how-to/load.md", "exec"), names)
    masks = stored(run)
    if reader == "DICOM Segmentation":
        assert names["masks"].shape[0] == len(names["seg"].SegmentSequence)
        wanted = in_original(masks[names["segment"].TrackingID], *geometry(run)[names["path"].stem])
        assert (names["mask"] != wanted).mean() < 1e-4
        return
    key = {"COCO": "annotation"}.get(reader, "pair")
    mask_id = names[key].get("mask_id")
    if mask_id is None:  # the authors' layout has no mask_id
        mask_id = next(line["mask_id"] for line in dataset(run, "train") if line["pair_id"] == names["pair"]["pair_id"])
    assert names["mask"].dtype == bool
    np.testing.assert_array_equal(names["mask"], masks[mask_id])
    if reader == "Hugging Face datasets":
        splits = {name: len(held) for name, held in names["pairs"].items()}
        assert splits == {SPLITS[split]: len(dataset(run, split)) for split in SPLITS}
        for image_id, affine in names["geometry"].items():
            np.testing.assert_array_equal(affine, geometry(run)[image_id][0])


@pytest.mark.parametrize(
    ("withhold", "kinds"),
    [(True, ["pixels", "report_text", "ids"]), (False, []), ([], []), (["ids", "pixels"], ["pixels", "ids"])],
)
def test_what_is_withheld_is_a_list_or_all_or_nothing(withhold, kinds):
    settings = read({"release": {"withhold": withhold, "salt": "key" if "ids" in kinds else ""}})
    assert stage_options(settings)["release"]["withhold"] == kinds
    assert stage_options(read({}))["release"]["withhold"] == ["pixels", "report_text"]


def test_a_wrong_setting_is_one_sentence(tmp_path):
    with pytest.raises(SettingsError, match=r"release.salt must name a key file: make one of 16 or more bytes\.$"):
        read({"release": {"withhold": ["ids"]}})
    with pytest.raises(SettingsError, match=r"^release.withhold, entry 1, is 'text', .*'report_text' or 'ids';"):
        read({"release": {"withhold": ["text"]}})
    with pytest.raises(UserError, match=r"release.salt: there is no file 'none'"):
        check_files(read({"release": {"withhold": True, "salt": "none"}}), "")
    with pytest.raises(UserError, match=r"release.test: there is no file 'none/default.jsonl'"):
        check_files(read({"release": {"test": "none/{thresholds}.jsonl"}}), "")
    check_files(read({"release": {"test": "results/review/{thresholds}/test.jsonl"}}), "")
    (tmp_path / "short").write_text("short")
    with pytest.raises(UserError, match="fewer than 16 bytes"):
        Withheld(["ids"], str(tmp_path / "short"))


def test_settings_are_published_without_places():
    held = {"root": "x", "a": {"b": ["/home/me", "PA"], "c": "https://me:1/"}, "model": "org/name", "d": "~/x"}
    assert without_paths(held) == {"root": "", "a": {"b": ["", "PA"], "c": ""}, "model": "org/name", "d": ""}

"""Original images instead of frames: the same places in more pixels, decoded as frames are, in tuning and asking."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import torch

from cxr.base.errors import StoreError, UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.imaging.frames.worker import prepare
from cxr.vlm.answers.ask import run_answers
from cxr.vlm.answers.one_image import run_image
from cxr.vlm.collate import Encoded
from cxr.vlm.families.engine import EncodedImages
from cxr.vlm.originals import Originals
from cxr.vlm.samples import ImageStore, read_samples
from cxr.vlm.settings import Vlm
from cxr.vlm.tuning.fit import EncodedCache
from cxr.vlm.tuning.tune import run_tuning
from cxr.workflow.params import stage_options
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings, parse_section
from dicom_files import dataset, encoded, picture, stored_values
from vlm_masks import OPTIONS as WITH_HEAD
from vlm_runs import ASKING, COMPUTE, OPTIONS, contents, recipe

STAGES = stage_options(Settings())
DECODING = STAGES["decoding"]
SIZES = {"film": (700, 560), "scan": (600, 900), "photo": (640, 640)}
"""{image: rows and columns}: a DICOM file with inverted grey levels, a PNG file of 16 bits, a JPEG file."""
TURNS = [{"question": "What is there?", "answer": "Things at <box:thing>."}, {"question": "Else?", "answer": "No."}]


def cohort(folder: Path) -> dict:
    """Write three files, their frames, the tables that name them, and a conversation about each."""
    folder.mkdir(parents=True, exist_ok=True)
    grey = {name: picture(*size) for name, size in SIZES.items()}
    film = dataset(stored_values(1 - grey["film"], 12, False), 12, PhotometricInterpretation="MONOCHROME1")
    files = {"film": encoded(film), "scan": cv2.imencode(".png", stored_values(grey["scan"], 16, False))[1].tobytes()}
    files["photo"] = cv2.imencode(".jpg", stored_values(grey["photo"], 8, False))[1].tobytes()
    rows, lines = [], []
    with ShardWriter(folder / "frames" / "00.h5", pictures=("image",)) as writer:
        for name, content in sorted(files.items()):
            path, source = folder / name, "own" if name == "film" else "more"
            path.write_bytes(content)
            _, frame, affine, shape, *_ = prepare(str(path), STAGES["frames"])
            writer.append(name, image=frame, to_original=affine, original_shape=np.array(shape, np.int32))
            rows.append({"source": source, "image_id": name, "path": str(path)})
            told = {"sample_id": f"s-{name}", "image_id": name, "source": source, "split": "train", "task": "talk"}
            lines.append(told | {"turns": TURNS, "boxes": {"thing": [[0.1, 0.2, 0.5, 0.6]]}})
    write_lines(folder / "lines.jsonl", lines)
    for source in ("own", "more"):
        pl.DataFrame([row for row in rows if row["source"] == source]).write_parquet(folder / f"{source}.parquet")
    tables = [str(folder / f"{source}.parquet") for source in ("own", "more")]
    return {"lines": str(folder / "lines.jsonl"), "pictures": [str(folder / "frames/00.h5")], "originals": tables}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return cohort(tmp_path_factory.mktemp("cohort") / "c")


def opened(given: dict, side: int = 0, how: dict = DECODING) -> tuple[ImageStore, dict]:
    samples = read_samples(given["lines"])
    store = ImageStore(given["pictures"], side, Originals.for_samples(given["originals"], how, samples))
    return store, {sample.image_id: sample for sample in samples}


@pytest.mark.parametrize(("name", "within"), [("film", 1), ("scan", 1), ("photo", 12)])
def test_an_original_has_the_files_own_pixels_upright_and_with_white_bone(given, name, within):
    store, samples = opened(given)
    with store:
        seen = store.get(samples[name])
        assert seen.shape == (*SIZES[name], 3) == (*store.size(samples[name]), 3)
    wanted = 255 * picture(*SIZES[name])
    assert np.abs(seen - wanted[..., None]).max() <= within


@pytest.mark.parametrize(
    ("directions", "stored"), [(["R", "F"], np.fliplr), (["F", "L"], np.transpose), (["H", "R"], np.rot90)]
)
def test_an_original_is_shown_upright_however_it_is_stored(tmp_path, directions, stored):
    grey = stored_values(picture(300, 200), 8, False)
    turned = np.ascontiguousarray(stored(grey) if directions != ["H", "R"] else np.rot90(grey.T, 2))
    (tmp_path / "a.dcm").write_bytes(encoded(dataset(turned, PatientOrientation=directions)))
    _, frame, affine, shape, *_ = prepare(str(tmp_path / "a.dcm"), STAGES["frames"])
    assert shape == turned.shape
    with ShardWriter(tmp_path / "frames/00.h5", pictures=("image",)) as writer:
        writer.append("a", image=frame, to_original=affine, original_shape=np.array(shape, np.int32))
    line = {"sample_id": "s", "image_id": "a", "source": "own", "split": "train", "task": "talk", "turns": TURNS}
    write_lines(tmp_path / "lines.jsonl", [line])
    pl.DataFrame({"source": ["own"], "image_id": ["a"], "path": [str(tmp_path / "a.dcm")]}).write_parquet(
        tmp_path / "own.parquet"
    )
    samples = read_samples(tmp_path / "lines.jsonl")
    originals = Originals.for_samples([str(tmp_path / "own.parquet")], DECODING, samples)
    with ImageStore([tmp_path / "frames/00.h5"], 0, originals) as store:
        assert store.size(samples[0]) == (300, 200)
        assert np.array_equal(store.get(samples[0])[..., 0], grey)
    with ImageStore([tmp_path / "frames/00.h5"]) as store:
        assert store.size(samples[0]) == (512, 342)


@pytest.mark.parametrize(("side", "film"), [(0, (700, 560)), (1024, (700, 560)), (350, (350, 280))])
def test_an_original_is_shrunk_and_never_enlarged(given, side, film):
    store, samples = opened(given, side)
    with store:
        assert store.get(samples["film"]).shape[:2] == store.size(samples["film"]) == film


def apart(store: ImageStore, plain: ImageStore, sample: object) -> tuple[float, int]:
    """Return the mean difference of an original, shrunk, to what its frame shows, both without their finest texture;
    and how many more pixels it has.
    """
    seen, framed = store.get(sample)[..., 0], plain.get(sample)[..., 0]
    small = cv2.resize(seen, framed.shape[::-1], interpolation=cv2.INTER_AREA)
    small, rough = (cv2.GaussianBlur(one.astype(np.float32), (0, 0), 3) for one in (small, framed))
    assert store.frame(sample).shape == plain.frame(sample).shape
    assert store.view(sample) == plain.view(sample)
    return float(np.abs(small - rough).mean()), seen.size - framed.size


def test_a_place_in_an_original_is_that_in_its_frame(given):
    """Boxes are fractions of the picture: they need the same edges, to a pixel of the frame."""
    store, samples = opened(given)
    with store, ImageStore(given["pictures"]) as plain:
        for sample in samples.values():
            far, more = apart(store, plain, sample)
            assert far < 0.8  # a shift by one pixel has 4.7 and more
            assert more > 0


def test_the_embedded_cohort_shows_the_same_places_in_more_pixels(workflow_run, tmp_path):
    shards = sorted((workflow_run / "results/frames").glob("[0-9]*.h5"))
    rows = pl.concat([read_table(path) for path in sorted((workflow_run / "results/cohort").glob("[0-9]*.parquet"))])
    paths = {("own", name): str(workflow_run / path) for name, path in rows.select("image_id", "path").iter_rows()}
    line = {"source": "own", "split": "train", "task": "t", "turns": []}
    found = []
    with ImageStore(shards, 1024, Originals(paths, DECODING)) as store, ImageStore(shards) as plain:
        for path in shards:
            with Shard(path) as shard:
                lines = [line | {"sample_id": name, "image_id": name} for name in shard.ids]
            write_lines(tmp_path / "lines.jsonl", lines)
            found += [apart(store, plain, one) for one in read_samples(tmp_path / "lines.jsonl")]
    assert len(found) > 5
    assert max(far for far, _ in found) < 0.8  # a shift by one pixel has .98 and more
    assert min(more for _, more in found) > 0


def test_what_is_gone_changed_or_unnamed_is_one_sentence(given, tmp_path):
    own = cohort(tmp_path / "own")
    film, scan = tmp_path / "own" / "film", tmp_path / "own" / "scan"
    samples = {sample.image_id: sample for sample in read_samples(own["lines"])}
    assert Originals.for_samples(own["originals"], DECODING, samples.values()).check() is None
    with pytest.raises(UserError, match="no table names the original file of the image 'photo' of 'more', which a run"):
        Originals.for_samples(own["originals"][:1], DECODING, samples.values())
    film.write_bytes(scan.read_bytes())
    scan.write_bytes(b"\x89PNG\r\n\x1a\n")
    store, _ = opened(own)
    with store:
        with pytest.raises(StoreError, match="image film has changed its size since its frame was made: run"):
            store.get(samples["film"])
        with pytest.raises(UserError, match=r"the original of the image 'scan' can no longer be decoded \(undecod"):
            store.get(samples["scan"])
    film.unlink()
    sentence = "1 of 3 original images no longer exist, such as 'film': mount the disk with the images, remake"
    with pytest.raises(UserError, match=sentence):
        tuned(tmp_path / "t", own)
    assert not (tmp_path / "t" / "run").exists()


def tuned(folder: Path, given: dict, original: dict = DECODING, head: dict | None = None, **masks: list) -> Path:
    options = replace(WITH_HEAD if head else OPTIONS, family="onevision", convention="unit", side=64, head=head or {})
    files = {name: given[name] for name in ("lines", "pictures")}
    files |= {"originals": given["originals"]} if original else {}
    run_tuning(
        **files, **masks, run=str(folder / "run"), updates=str(folder / "updates.tsv"),
        left_out=str(folder / "left_out.parquet"), conservation=str(folder / "conservation.tsv"),
        options=replace(recipe(options, updates=2), original=original), attrs={}, compute=COMPUTE,
    )  # fmt: skip
    return folder / "run"


def asked(path: Path, given: dict, run: Path, **masks: str) -> list[dict]:
    run_answers(**given, **masks, answers=str(path), run=str(run), options=ASKING, attrs={}, compute=COMPUTE)
    return list(read_lines(path))


def test_a_run_is_tuned_on_originals_and_asked_about_them(given, tmp_path):
    """The same bytes twice, others than on frames; asked among others and of one file, it says the same."""
    run = tuned(tmp_path / "a", given)
    assert contents(tuned(tmp_path / "b", given)) == contents(run)
    framed = tuned(tmp_path / "c", given, {})
    weights = "model/model.safetensors"
    assert contents(framed)[weights] != contents(run)[weights]
    assert json.loads((run / "run.json").read_text())["original"] == DECODING
    lines = asked(tmp_path / "a.jsonl", given, run)
    assert {line["failure"] for line in lines} == {""}
    about = run_image(
        run=str(run), base="", image=str(Path(given["lines"]).parent / "film"), output=str(tmp_path / "out"),
        questions=[turn["question"] for turn in TURNS], referring=False,
        asking=ASKING.__dict__, cohort=STAGES["cohort"], frames=STAGES["frames"], quality=0, compute=COMPUTE, code="",
    )  # fmt: skip
    assert [turn["answer"] for turn in about["turns"]] == [
        line["text"] for line in lines if line["sample_id"] == "s-film"
    ]
    with pytest.raises(UserError, match="no table names the original file of the image"):
        asked(tmp_path / "d.jsonl", given | {"originals": []}, run)


def test_a_head_draws_in_the_frame_of_an_original(given, tmp_path):
    """SAM sees the frame, in which the masks lie, and the language model the original."""
    folder = tmp_path / "own"
    own = cohort(folder)
    lines = [
        line | {"turns": [{"question": "Segment it.", "answer": "[SEG]"}], "boxes": {}, "mask_ids": ["m"]}
        for line in read_lines(own["lines"])
    ]
    write_lines(own["lines"], lines)
    mask = np.zeros((512, 512), bool)
    mask[200:300, 150:250] = True
    with ShardWriter(folder / "masks" / "00.h5", key="mask_id") as writer:
        writer.append("m", mask=mask)
    run = tuned(tmp_path / "t", own, head=WITH_HEAD.head, masks=[str(folder / "masks/00.h5")])
    assert read_table(tmp_path / "t" / "left_out.parquet").is_empty()
    assert read_table(tmp_path / "t" / "updates.tsv")["masks"].to_list() == [3, 3]
    lines = asked(tmp_path / "a.jsonl", own, run, masks=str(tmp_path / "a.h5"))
    with Shard(tmp_path / "a.h5", key="mask_key") as shard:
        assert len(shard.ids) == sum(line["text"].count("[SEG]") for line in lines)


def planned(run: dict, **answers: object) -> object:
    run = {"engine": "onevision_tiny", "lines": "radvlm:all", "pictures": "original"} | run
    settings = parse_section(Vlm, {"tuning": {"runs": {"mine": run}}, "answers": {"sets": {}} | answers})
    return VlmPlan(settings, "cpu", 0, ["all"], DECODING)


@pytest.mark.parametrize(
    ("run", "side"),
    [
        ({}, 128), ({"picture_px": 0}, 128), ({"picture_px": 64}, 64),
        ({"engine": "onevision", "model": "o/v"}, 1024), ({"engine": "onevision", "model": "o/v", "picture_px": 0}, 0),
    ],
)  # fmt: skip
def test_the_smaller_limit_of_a_run_holds(run, side):
    options = planned(run).runs["mine"]["options"]
    assert (options["side"], options["original"]) == (side, DECODING)
    other = planned(run | {"pictures": "frame"}).runs["mine"]["options"]
    assert (other["side"], other["original"]) == (0 if "model" in run else 128, {})


@pytest.mark.parametrize(
    ("run", "answers", "sentence"),
    [
        ({"lines": "medground:dataset"}, {}, "lines is 'medground:dataset', whose original images are not known: set"),
        (
            {},
            {"sets": {"mine": __file__}},
            "the original images of vlm.answers.sets.mine, which the model must also answer",
        ),
    ],
)
def test_originals_that_nobody_names_are_refused(run, answers, sentence):
    with pytest.raises(UserError, match=f"vlm.tuning.runs.mine.pictures is 'original', but {sentence}"):
        planned(run, **answers)


def test_a_side_that_shows_nothing_is_refused():
    with pytest.raises(ValueError, match="picture_px is 20: give at least 56, or 0 for original sizes"):
        planned({"picture_px": 20})


def test_what_stays_in_memory_is_bounded_by_bytes():
    made = []

    def encode(at: int) -> Encoded:
        made.append(at)
        return Encoded(str(at), [], [], EncodedImages({"pixel_values": torch.zeros(at, dtype=torch.uint8)}, (), ()))

    recent = EncodedCache(encode, 100)
    assert [recent(at).sample_id for at in (40, 50, 40, 30, 40, 50, 200, 40)] == [
        "40", "50", "40", "30", "40", "50", "200", "40",
    ]  # fmt: skip
    assert made == [40, 50, 30, 50, 200, 40]  # 30 pushed 50 out, 50 then 30, 200 all
    assert recent.num_bytes == 40

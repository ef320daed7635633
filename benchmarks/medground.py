"""Measure the speed of MedGround in comparison with simpler implementations of the same work.

    python benchmarks/medground.py [--output benchmarks/medground.tsv] [--npz-mb 500]

``ratio`` is the core seconds of the simple implementation divided by ours, unless ``against`` says otherwise.
``target`` is the specification's limit. The row of regions needs scikit-image, which the project does not install.
Without scikit-image it is omitted with a message.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/support"), str(ROOT / "tests")]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

import medground_oracle as oracle  # noqa: E402
from cxr.base.hdf5 import Shard  # noqa: E402
from cxr.base.tables import read_table, write_table  # noqa: E402
from cxr.medground.logic.components import find_components  # noqa: E402
from cxr.medground.logic.decide import Decider, Query  # noqa: E402
from cxr.medground.logic.facts import Facts  # noqa: E402
from cxr.medground.logic.scene import build_scene  # noqa: E402
from cxr.medground.logic.text import find_text_fault  # noqa: E402
from cxr.medground.queries.make_queries import ImageQueries  # noqa: E402
from cxr.medground.sources.cells import read_cells  # noqa: E402
from cxr.medground.verification.text_rules import allowed_words, check_text  # noqa: E402
from medground_data import make_regions_of, queries_options, read_source, regions_of, source_keys  # noqa: E402
from medground_scenes import NUMBERS, numbers, query_as_dict, scene_as_lists  # noqa: E402
from unions import of_unions, seconds  # noqa: E402

UNIONS = ("IoU of unions of 60 and 60 boxes, 40 pairs at once", "a raster of 1000 × 1000")


def row(what: str, against: str, ratio: float, target: str = "") -> dict:
    """Return a row of the table."""
    return {"what": what, "against": against, "ratio": ratio, "target": target}


def of_regions() -> list[dict]:
    """Return the row of regions and their attributes in 200 synthetic images, in comparison with scikit-image."""
    try:
        from skimage.measure import label, regionprops
    except ImportError:
        print("scikit-image is not installed: the row of regions is left out")
        return []
    masks = [mask for _, read_image in read_cells(200, 1) for mask in read_image().masks.values() if mask.any()]

    def ours() -> list[tuple]:
        return [
            (one.box, one.area, one.centroid, one.elongation, one.solidity, one.compactness)
            for mask in masks
            for one in find_components(mask)
        ]

    def theirs() -> list[tuple]:
        return [
            (one.bbox, one.area, one.centroid, one.axis_minor_length, one.axis_major_length, one.solidity,
             one.perimeter_crofton)
            for mask in masks
            for one in regionprops(label(mask, connectivity=2))
        ]  # fmt: skip

    assert sorted(one[0] for one in ours()) == sorted((x1, y1, x2, y2) for (y1, x1, y2, x2), *_ in theirs())
    return [
        row("regions and their attributes, 200 drawn pictures", "regionprops", seconds(theirs) / seconds(ours), "4")
    ]


def dots(count: int, seed: int = 0) -> tuple[dict, list[dict], list[dict], Facts]:
    """Return image, regions, regions with shifted outlines, and facts of a synthetic image of ``count`` cells of two
    classes."""
    rng = np.random.default_rng(seed)
    side, steps = 1024, int(np.ceil(np.sqrt(count)))
    planes = {name: np.zeros((side, side), np.uint8) for name in ("nucleus", "rod")}
    picture = rng.integers(90, 110, (side, side, 3), np.uint8)
    for at in range(count):
        x, y = (int((place + 0.5) * side / steps) for place in (at % steps, at // steps))
        x, y = (int(v + rng.integers(-6, 7)) for v in (x, y))
        name = "rod" if rng.random() < 0.3 else "nucleus"
        long = int(rng.integers(4, 14))
        thin = max(2, round(long * (0.35 if name == "rod" else float(rng.uniform(0.6, 1)))))
        cv2.ellipse(planes[name], (x, y), (long, thin), float(rng.uniform(0, 180)), 0, 360, 1, -1)
    from cxr.medground.logic.facts import Planes
    from cxr.medground.regions import make_regions
    from medground_data import regions_options

    for plane in planes.values():
        picture[plane > 0] = rng.integers(150, 230)
    image = {
        "image_id": f"dots{count}", "boxes": None, "extent": [0, 0, side, side], "inner": [False] * 4,
        "anatomy": "none", "domain": "nuclei", "radiological": None, "split": "test", "subject_id": "a", "licence": "",
        "to_original": [1.0, 0, 0, 0, 1.0, 0],
    }  # fmt: skip
    make_regions.MAX_BOXES = 1000
    held = Planes(picture, {name: plane > 0 for name, plane in planes.items()})
    rows, _, further = make_regions.measure_image(image, held, regions_options(), 2026)
    words = {"nucleus": {"one": "nucleus", "many": "nuclei", "parents": {"cell": "cells"}, "ask": True}}
    words["rod"] = {"one": "rod", "many": "rods", "parents": {"cell": "cells"}, "ask": True}
    return image, rows, further, Facts(["nucleus", "rod"], words, [], (), [], "drawn", False)


def of_logic() -> list[dict]:
    """Return two rows: queries about 300 regions in comparison with plain Python, and the cost of 60 regions over
    10."""
    image, rows, _, facts = dots(300)
    scene = build_scene(image, rows, facts, 1024)
    decider = Decider(scene, NUMBERS)
    atoms = [name for name in decider.atoms if name.startswith(("class", "size", "shape", "position"))]
    asked = [Query((one, other)) for at, one in enumerate(atoms) for other in atoms[at + 1 :]]
    lists, kept = scene_as_lists(scene), numbers()
    for query in asked[::7]:
        found = decider.answer(query)
        other = oracle.resolve(query_as_dict(query), lists, kept)
        assert (set(found.selected) if found.decidable else None) == other, query
    few = asked[::9]
    ours = seconds(lambda: [Decider(scene, NUMBERS)] and [decider.answer(one) for one in asked]) / len(asked)
    theirs = seconds(lambda: [oracle.resolve(query_as_dict(one), lists, kept) for one in few], 1) / len(few)
    cost = {}
    for count in (10, 60):
        options = queries_options("dots")["options"]
        images = [
            (ImageQueries(image, rows, facts, 1024, "rules", "dots"), further)
            for image, rows, further, facts in (dots(count, seed) for seed in range(4))
        ]
        num_queries = sum(len(image.sample(further, options, 2026)[0]) for image, further in images)
        work = [
            lambda image=image, further=further, options=options: replace(image).sample(further, options, 2026)
            for image, further in images
        ]
        cost[count] = sum(map(seconds, work)) / num_queries
    return [
        row("a query decided, 300 regions", "plain Python", theirs / ours, "50"),
        row("a query made, 60 regions", "10 regions (ratio: cost of 60 over cost of 10)", cost[60] / cost[10], "<= 2"),
    ]


def of_verification(folder: Path) -> list[dict]:
    """Return the row of the verification stages I and II, in comparison with the engine rules on the same images."""
    keys = source_keys(kind="cells", domain="nuclei", modality="drawn microscopy")
    make_regions_of(read_source(folder, keys, cells=60, name="cells"))
    images = {one["image_id"]: one for one in read_table(folder / "sources/images.parquet").to_dicts()}
    by_image: dict[str, list[dict]] = {}
    further: dict[str, list[dict]] = {}
    for one in regions_of(folder):
        by_image.setdefault(one["image_id"], []).append(one)
    for one in read_table(folder / "regions/00.shifted.parquet").to_dicts():
        further.setdefault(one["image_id"], []).append(one)
    with Shard(folder / "sources/00.h5") as shard:
        facts, side = Facts.from_shard(shard), shard.shape("picture")[0]
    options = queries_options("cells")["options"]

    def make_queries() -> list[tuple]:
        image_queries = {
            name: ImageQueries(images[name], rows, facts, side, "rules", "cells") for name, rows in by_image.items()
        }
        return [
            (name, line)
            for name, image in image_queries.items()
            for line in image.sample(further[name], options, 2026)[0]
        ]

    lines = make_queries()

    def verified() -> int:
        count = 0
        for name, rows in by_image.items():
            decider = Decider(build_scene(images[name], rows, facts, side), NUMBERS)
            allowed = allowed_words(decider, facts.allow, "")
            for other, line in lines:
                if other == name:
                    count += not find_text_fault(line["query"])
                    count += check_text(line["query"], line["regions"], decider, allowed)[0] is None
        return count

    assert verified() == 2 * len(lines)
    ratio = seconds(verified) / seconds(make_queries)
    return [row("stages I and II", "the engine rules (ratio: their time over its)", ratio, "<= 1.5")]


PEAK = """
import resource, sys, zipfile
sys.path.insert(0, sys.argv[1])
import numpy as np
from cxr.medground.sources.medsegbench import Member
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
before, held = resource.getrusage(resource.RUSAGE_SELF), peak()
if sys.argv[2] == "rows":
    with zipfile.ZipFile(sys.argv[3]) as archive:
        total = sum(int(one[0, 0, 0]) for one in Member(archive, "train_images").rows())
else:
    with np.load(sys.argv[3]) as arrays:
        total = int(arrays["train_images"][:, 0, 0, 0].sum())
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak() - held, total)
"""


def of_npz(folder: Path, megabytes: int) -> list[dict]:
    """Return the time and the memory of reading a compressed npz row by row, in comparison with ``numpy.load``."""
    count = megabytes * 1_000_000 // (512 * 512 * 3)
    noise = np.random.default_rng(1).integers(0, 40, (16, 512, 512, 3), np.uint8)
    path = folder / "big.npz"
    np.savez_compressed(path, train_images=np.concatenate([noise] * (count // 16)))
    found = {}
    for way in ("rows", "whole"):
        told = [
            subprocess.run(
                [sys.executable, "-c", PEAK, str(ROOT / "scripts"), way, str(path)], capture_output=True, text=True,
                check=True,
            ).stdout.split()
            for _ in range(2)
        ]  # fmt: skip
        found[way] = min(float(one[0]) for one in told), int(told[0][1]), told[0][2]
    assert found["rows"][2] == found["whole"][2]
    size = f"a compressed npz of {count * 512 * 512 * 3 / 1e6:.0f} MB by rows"
    return [
        row(f"{size}: time", "numpy.load (ratio: ours over its)", found["rows"][0] / found["whole"][0], "<= 1.3"),
        row(f"{size}: memory", "numpy.load (ratio: ours over its)", found["rows"][1] / found["whole"][1], "<= 0.25"),
    ]


def main() -> None:
    """Measure the rows, print them and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="benchmarks/medground.tsv")
    parser.add_argument("--npz-mb", type=int, default=500)
    given = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(*UNIONS, of_unions(), "20"), *of_regions(), *of_logic(), *of_verification(Path(folder) / "cells")]
        rows += of_npz(Path(folder), given.npz_mb)
    table = pl.DataFrame(rows)
    with pl.Config(tbl_width_chars=200, fmt_str_lengths=100, tbl_rows=20):
        print(table)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    write_table(given.output, table)


if __name__ == "__main__":
    main()

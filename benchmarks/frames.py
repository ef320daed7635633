"""Measure the speed of the stage frames, including reading and writing, for each DICOM encoding and image size.

    python benchmarks/frames.py [--images 24] [--threads 1 2] [--output benchmarks/frames.tsv]

The images are synthetic 12-bit radiographs of 2544 x 3056 (as in MIMIC-CXR) and 1024 x 1024 pixels. The time includes
the start of the decoding processes.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests", "tests/support")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from pydicom import uid  # noqa: E402

from cxr.base.columns import schema  # noqa: E402
from cxr.base.hdf5 import Shard  # noqa: E402
from cxr.base.jobs import settings_arguments  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.imaging.cohort.rows import SHARD  # noqa: E402
from cxr.imaging.frames.make_frames import run_shard  # noqa: E402
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import Settings  # noqa: E402
from dicom_files import dataset, encoded, picture, stored_values  # noqa: E402

SYNTAXES = (
    uid.ExplicitVRLittleEndian,
    uid.RLELossless,
    uid.JPEGLosslessSV1,
    uid.JPEGLSLossless,
    uid.JPEG2000Lossless,
    uid.JPEGBaseline8Bit,
)
SHAPES = ((2544, 3056), (1024, 1024))


def radiograph(shape: tuple[int, int], syntax: uid.UID) -> bytes:
    """Return a DICOM file of a smooth synthetic image with a little noise, in the transfer syntax ``syntax``."""
    bits = 8 if syntax == uid.JPEGBaseline8Bit else 12
    noise = np.random.default_rng(0).normal(0, 0.004, shape)
    return encoded(dataset(stored_values(np.clip(picture(*shape) + noise, 0, 1), bits, False), bits), syntax)


def seconds(folder: Path, data: bytes, images: int, threads: int) -> float:
    """Return the wall seconds of the stage for a shard of ``images`` copies of a DICOM file."""
    records, empty = [], {name: "" if dtype == pl.String else None for name, dtype in schema(SHARD).items()}
    for number in range(images):
        path = folder / f"{number}.dcm"
        path.write_bytes(data)
        row = {"image_id": f"i{number:05d}", "study_id": f"s{number:05d}", "path": str(path), "rank": 0}
        records.append(empty | row)
    write_table(folder / "cohort.parquet", pl.DataFrame(records, schema=schema(SHARD)))
    output = folder / "frames.h5"
    began = time.perf_counter()
    run_shard(
        cohort=str(folder / "cohort.parquet"),
        output=str(output),
        excluded=str(folder / "excluded.parquet"),
        corrected=str(folder / "corrected.parquet"),
        **settings_arguments(run_shard, stage_options(Settings())["frames"]),
        attrs={},
        threads=threads,
    )
    took = time.perf_counter() - began
    with Shard(output) as shard:
        assert len(shard) == images
    return took


def main() -> None:
    """Measure every encoding and size, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", default=str(ROOT / "benchmarks/frames.tsv"))
    arguments = parser.parse_args()
    rows = []
    for shape in SHAPES:
        for syntax in SYNTAXES:
            data = radiograph(shape, syntax)
            for threads in arguments.threads:
                with tempfile.TemporaryDirectory() as folder:
                    took = seconds(Path(folder), data, arguments.images, threads)
                row = {
                    "encoding": syntax.name.split(",")[0],
                    "rows": shape[0],
                    "columns": shape[1],
                    "megabytes": round(len(data) / 1e6, 2),
                    "threads": threads,
                    "images": arguments.images,
                    "images_per_second": round(arguments.images / took, 2),
                }
                print(*row.values(), sep="\t", flush=True)
                rows.append(row)
    write_table(arguments.output, pl.DataFrame(rows))


if __name__ == "__main__":
    main()

"""Measure disk space per image and reading speed per row of each stage's arrays, for our format and others.

    python benchmarks/storage.py [--results real/results] [--images 60] [--output benchmarks/storage.tsv]

The arrays are those of the embedded cohort, which is processed first, and those of each given results folder. Each
format must return the same arrays bit for bit. Rows are read one by one in random order from files in the system's
cache, so the time is that of the decoder. Reading times are the best of three rounds; rows are written once.

The table has these columns, per row: ``bytes`` of the files, ``disk`` bytes in occupied blocks, and number of
``files``. ``reads`` and ``writes`` are rows per core second, to and from a bool or uint8 array. A row is an image, or
one mask of the stage masks.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

import cv2  # noqa: E402
import h5py  # noqa: E402
import hdf5plugin  # noqa: E402
import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from PIL import Image  # noqa: E402

from cxr.base.hdf5 import Shard, ShardWriter, pack, unpack  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.workflow.settings import read  # noqa: E402
from whole import Bench  # noqa: E402

ARRAYS = (
    ("frames", "image", "picture"),
    ("organs", "mask", "masks"),
    ("anomaly", "anomaly", "map"),
    ("anomaly", "brighter", "map"),
    ("anatomy", "mask", "masks"),
    ("masks", "mask", "masks"),
)
"""(stage, field, kind of array)."""
MIMIC = 377_110
"""Number of images in MIMIC-CXR."""


class Way(NamedTuple):
    """A format. ``write`` writes rows into a folder; ``open`` returns a function from a row's number to its array."""

    write: Callable[[Path, np.ndarray], None]
    open: Callable[[Path], Callable[[int], np.ndarray]]


def ours(kind: str) -> Way:
    """Return the format of this project's shards."""

    def write(folder: Path, rows: np.ndarray) -> None:
        with ShardWriter(folder / "00.h5", pictures=("x",) if kind == "picture" else ()) as writer:
            for number, row in enumerate(rows):
                writer.append(str(number), x=row)

    def open_(folder: Path) -> Callable[[int], np.ndarray]:
        shard = Shard(folder / "00.h5").__enter__()
        return lambda number: shard.get("x", str(number))

    return Way(write, open_)


def same(value: np.ndarray) -> np.ndarray:
    """Return the array unchanged."""
    return value


def hdf5(codec: dict, encode: Callable = same, decode: Callable = same) -> Way:
    """Return a format of one HDF5 file with one chunk per row; ``encode`` and ``decode`` convert a row."""

    def write(folder: Path, rows: np.ndarray) -> None:
        first = encode(rows[0])
        with h5py.File(folder / "00.h5", "w", libver="v110", locking=False) as file:
            shape = (len(rows), *first.shape)
            # with a checksum, as in our shards
            data = file.create_dataset("x", shape, first.dtype, chunks=(1, *first.shape), fletcher32=True, **codec)
            for number, row in enumerate(rows):
                data[number] = encode(row)

    def open_(folder: Path) -> Callable[[int], np.ndarray]:
        data = h5py.File(folder / "00.h5", "r", locking=False)["x"]
        return lambda number: decode(data[number])

    return Way(write, open_)


def png(save: Callable, load: Callable) -> Way:
    """Return a format of one folder per row, with one PNG file per image or mask."""

    def write(folder: Path, rows: np.ndarray) -> None:
        for number, row in enumerate(rows):
            (folder / str(number)).mkdir()
            for k, plane in enumerate(row.reshape(-1, *row.shape[-2:])):
                save(str(folder / str(number) / f"{k}.png"), plane)

    def open_(folder: Path) -> Callable[[int], np.ndarray]:
        planes = len(list((folder / "0").iterdir()))

        def get(number: int) -> np.ndarray:
            found = [load(str(folder / str(number) / f"{k}.png")) for k in range(planes)]
            return found[0] if planes == 1 else np.stack(found)

        return get

    return Way(write, open_)


def pillow() -> Way:
    """Return the PNG format of Pillow, with one bit per pixel for a bool array."""
    return png(lambda path, plane: Image.fromarray(plane).save(path), lambda path: np.asarray(Image.open(path)))


def opencv(masks: bool) -> Way:
    """Return the PNG format of OpenCV; masks have the values 0 and 255."""
    if masks:
        return png(
            lambda path, plane: cv2.imwrite(path, plane.view(np.uint8) * 255), lambda path: cv2.imread(path, 0) > 0
        )
    return png(cv2.imwrite, lambda path: cv2.imread(path, 0))


def rows_xored(mask: np.ndarray) -> np.ndarray:
    """Pack a mask, and replace each image row by its difference (XOR) from the row above."""
    packed = pack(mask)
    packed[..., 1:, :] ^= packed[..., :-1, :].copy()
    return packed


def rows_restored(stored: np.ndarray) -> np.ndarray:
    """Undo :func:`rows_xored`."""
    return unpack(np.bitwise_xor.accumulate(stored, axis=-2))


def rows_together(mask: np.ndarray) -> np.ndarray:
    """Pack masks (K, H, W) to (H, K, W / 8), with the same image row of all masks side by side."""
    return np.ascontiguousarray(pack(mask).swapaxes(0, 1))


def planes(mask: np.ndarray) -> np.ndarray:
    """Convert masks (K, H, W) to uint16 (H, W), in which each bit is a mask."""
    return np.bitwise_or.reduce([plane.astype(np.uint16) << k for k, plane in enumerate(mask)])


def planes_apart(stored: np.ndarray, number: int) -> np.ndarray:
    """Undo :func:`planes`."""
    return np.stack([(stored & (1 << k)) != 0 for k in range(number)])


def above(picture: np.ndarray) -> np.ndarray:
    """Replace each pixel by its difference from the pixel above."""
    return np.concatenate([picture[:1], picture[1:] - picture[:-1]])


def zstd(level: int) -> dict:
    """Return the codec's arguments."""
    return dict(hdf5plugin.Zstd(clevel=level))


def ways(kind: str, row: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Yield (name, format) for rows like ``row``: ours, usual formats, then other candidates."""
    yield "ours", ours(kind)
    yield "gzip-4", hdf5({"compression": "gzip", "compression_opts": 4})
    yield "gzip-9", hdf5({"compression": "gzip", "compression_opts": 9})
    yield "PNG, OpenCV", opencv(kind == "masks")
    yield "PNG, Pillow", pillow()
    bits = dict(hdf5plugin.Blosc2("zstd", 5, hdf5plugin.Blosc2.BITSHUFFLE))
    bitshuffle = dict(hdf5plugin.Bitshuffle(cname="zstd", clevel=3))
    if kind == "masks":
        packed = partial(hdf5, encode=pack, decode=unpack)
        yield "bytes, zstd 1", hdf5(zstd(1))
        yield "packed, gzip-4", packed({"compression": "gzip", "compression_opts": 4})
        for level in (1, 3, 9, 19):
            yield f"packed, zstd {level}", packed(zstd(level))
        yield "packed, Blosc2 bit shuffle zstd 5", packed(bits)
        yield "packed, Bitshuffle zstd 3", packed(bitshuffle)
        yield "packed, rows xored, zstd 3", hdf5(zstd(3), rows_xored, rows_restored)
        if row.ndim == 3:
            together = hdf5(zstd(3), rows_together, lambda stored: unpack(stored.swapaxes(0, 1)))
            yield "packed, rows together, zstd 3", together
            yield "16 bits a pixel, zstd 3", hdf5(zstd(3), planes, partial(planes_apart, number=len(row)))
        return
    for level in (1, 3, 9, 14, 19):
        yield f"zstd {level}", hdf5(zstd(level))
    yield "Blosc2 bit shuffle zstd 5", hdf5(bits)
    yield "Bitshuffle zstd 3", hdf5(bitshuffle)
    # 35 is Blosc2's filter bytedelta, which hdf5plugin brings along but has no name for
    differences = {"compression": hdf5plugin.BLOSC2_ID, "compression_opts": (0, 0, 0, 0, 1, 35, 5)}
    yield "Blosc2 byte differences zstd 1", hdf5(differences)
    yield (
        "differences to above, zstd 1",
        hdf5(zstd(1), above, lambda stored: np.add.accumulate(stored, axis=0, dtype=np.uint8)),
    )
    yield "HTJ2K", hdf5(dict(hdf5plugin.Htj2k()))
    yield "JPEG-LS", hdf5(dict(hdf5plugin.FciDecomp()))


def measure(way: Way, rows: np.ndarray) -> dict[str, float]:
    """Write the rows, read them in random order and check them; return the columns of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.process_time()
        way.write(folder, rows)
        writing = time.process_time() - began
        get, order = way.open(folder), np.random.default_rng(0).permutation(len(rows))
        for number in order:
            found = get(number)
            assert found.dtype == rows.dtype
            assert np.array_equal(found, rows[number])
        reading = []
        for _ in range(3):
            began = time.process_time()
            for number in order:
                get(number)
            reading.append(time.process_time() - began)
        files = [path.stat() for path in folder.rglob("*") if path.is_file()]
        return {
            "bytes": sum(file.st_size for file in files) / len(rows),
            "disk": sum(file.st_blocks * 512 for file in files) / len(rows),
            "files": len(files) / len(rows),
            "reads": len(rows) / min(reading),
            "writes": len(rows) / writing,
        }


def arrays(results: Path, stage: str, field: str, number: int) -> np.ndarray:
    """Return up to ``number`` rows of a stage's field, evenly spread over its shards: bool or uint8 (N, ...)."""
    # masks have one folder per threshold set
    folder = next(path for path in (results / stage / "default", results / stage) if path.is_dir())
    key = "mask_id" if stage == "masks" else "image_id"
    places = []
    for path in sorted(folder.glob("*.h5")):
        with Shard(path, key=key) as shard:
            places += [(path, row_id) for row_id in shard.ids]
    chosen = [places[k] for k in np.linspace(0, len(places) - 1, min(number, len(places))).astype(int)]
    found = []
    for path, row_id in chosen:
        with Shard(path, key=key) as shard:
            found.append(shard.get(field, row_id))
    return np.stack(found)


def rows_of(source: str, results: Path, number: int) -> Iterator[dict]:
    """Yield a row of the table for each array and format."""
    for stage, field, kind in ARRAYS:
        rows = arrays(results, stage, field, number)
        # more data than HDF5 caches, so that rows are read from the file
        if rows.nbytes < 16 << 20:
            rows = np.resize(rows, (-(-(16 << 20) // rows[0].nbytes), *rows.shape[1:]))
        for way, how in ways(kind, rows[0]):
            about = {"source": source, "stage": stage, "field": field, "way": way, "rows": len(rows)}
            yield about | measure(how, rows)
            print(f"{source} {stage} {field}: {way}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", action="append", default=[], help="results folder of a run; may be repeated")
    parser.add_argument("--studies", type=int, default=48)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--output", default="benchmarks/storage.tsv")
    given = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        phantom = {"studies": given.studies, "subjects": min(given.studies, 40)}
        Bench(Path(folder), read({"phantom": phantom, "cohort": {"shards": 1}}), 1).run()
        found = list(rows_of("embedded", Path(folder), given.images))
    for results in given.results:
        found += rows_of(results, Path(results), given.images)
    per_mimic = (pl.col("bytes") * MIMIC / 1e9).alias("gb_377110")
    table = pl.DataFrame(found).with_columns(per_mimic).with_columns(pl.col(pl.Float64).round_sig_figs(3))
    write_table(given.output, table)
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_width_chars=160):
        print(table)
    print(f"table in {given.output}")


if __name__ == "__main__":
    main()

"""Measure SemiSynCXR's editing: the shared work of several configurations, and the speed of the editor lite.

    python benchmarks/semisyn_editing.py [--jobs 3] [--run FOLDER] [--output benchmarks/semisyn_editing.tsv] [--hold]

RadEdit's engine runs on the CPU with a tiny model of the published classes (tests/support/tiny_diffusion.py). The rows
that its net processes are counted, for four configurations of each source one at a time and together. With ``--run``,
the folder of a finished `snakemake semisyn`, the editor lite and the engine lite of the anomaly maps run on its first
shard, including files, on one core. With ``--hold`` the exit status is 1 if a ratio misses its limit or an image
differs.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests/support")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

from cxr.base.engines import Setup  # noqa: E402
from cxr.base.hdf5 import Shard  # noqa: E402
from cxr.imaging.anomaly import map_anomalies  # noqa: E402
from cxr.imaging.anomaly.settings import AnomalySettings  # noqa: E402
from cxr.semisyn.editing import edit_images  # noqa: E402
from cxr.semisyn.editing.edit_images import soft_mask  # noqa: E402
from cxr.semisyn.editing.engine import Job  # noqa: E402
from cxr.semisyn.editing.settings import EditingConfig  # noqa: E402
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import Settings  # noqa: E402

SHARED, FASTER = 0.75, 1.0
CONFIGS = ({}, {"blur": "gauss_r1"}, {"guidance": 12.0}, {"blur": "ggauss_b4"})
"""Four configurations. The second to fourth differ from the first in mask or guidance; the fourth also has another
prompt."""
NEGATIVES = ("", "no acute process")
SHAPE, BOXES, STEPS = (512, 512), np.array([[100.0, 120, 260, 300]]), 6


def jobs(number: int, negative: str) -> list[Job]:
    """Return ``number`` jobs under each of the four configurations."""
    found = []
    for at in range(number):
        for place, told in enumerate(CONFIGS):
            config = EditingConfig(engine="radedit", negative=negative, **told).as_dict()
            prompt = "heart" if place == len(CONFIGS) - 1 else "edema"
            mask = soft_mask(BOXES, SHAPE, config["blur"])
            found.append(Job(f"edema-{at:06d}", "edema", prompt, BOXES, ("right",), None, mask, at, config))
    return found


def evaluations(number: int, negative: str) -> tuple[int, int, bool]:
    """Return (net's rows one at a time, net's rows together, whether all images are equal) for the jobs."""
    from cxr.semisyn.editing import radedit
    from tiny_diffusion import write_radedit

    with tempfile.TemporaryDirectory() as folder:
        engine_settings = {"steps": STEPS, "dtype": "float32", "autoencoder": "float32"}
        texts = frozenset({"edema", "heart", *NEGATIVES})
        editor = radedit.load(None, Setup(engine_settings, write_radedit(Path(folder)), "cpu", 8), texts)
    rows: list[int] = []
    kind = type(editor.nets)
    inner = kind.predict

    def predict(self, latents, at, prompts):
        rows.append(len(latents))
        return inner(self, latents, at, prompts)

    kind.predict = predict
    try:
        every = jobs(number, negative)
        images = [np.random.default_rng(one.seed).integers(0, 256, SHAPE).astype(np.uint8) for one in every]
        alone = [editor.edit_batch([image], [{}], [one])[0].image for image, one in zip(images, every, strict=True)]
        separate, rows[:] = sum(rows), []
        together = editor.edit_batch(images, [{}] * len(every), every)
    finally:
        kind.predict = inner
    same = all(np.array_equal(one, other.image) for one, other in zip(alone, together, strict=True))
    return separate, sum(rows), same


def rate(work: Callable, output: Path) -> float:
    """Return the number of images per core second that ``work`` writes to ``output``."""
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    with Shard(output) as shard:
        return len(shard) / seconds


def rates(run: Path) -> tuple[float, float]:
    """Return the images per core second of (the editor lite, the anomaly maps) on the first shard of a finished run."""
    options, results = stage_options(Settings()), run / "results"
    shard = min(path.stem for path in (results / "frames").glob("[0-9]*.h5"))
    given = {name: str(results / f"{name}/{shard}.h5") for name in ("frames", "organs")} | {"threads": 1, "attrs": {}}
    with tempfile.TemporaryDirectory() as folder:
        out = {name: str(Path(folder) / name) for name in ("boxes.parquet", "excluded.parquet", "lite.h5", "maps.h5")}
        editing = edit_images.EditingOptions(**options["semisyn_editing"] | {"engine": "lite", "engine_settings": {}})
        edited = rate(
            lambda: edit_images.run_shard(
                plan=str(results / "semisyn/placement/plan.parquet"),
                placed=str(results / f"semisyn/placement/{shard}.parquet"), shard=shard, config="chosen",
                options=editing, output=out["lite.h5"], boxes=out["boxes.parquet"],
                excluded=out["excluded.parquet"], **given,
            ),
            Path(out["lite.h5"]),
        )  # fmt: skip
        maps = AnomalySettings.from_dict(options["anomaly"])
        mapped = rate(
            lambda: map_anomalies.run_shard(
                output=out["maps.h5"], excluded=out["excluded.parquet"], options=maps, **given
            ),
            Path(out["maps.h5"]),
        )
    return edited, mapped


def main() -> int:
    """Measure the rows, print them and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--hold", action="store_true")
    asked = parser.parse_args()
    rows, broken = [], False
    for negative in NEGATIVES:
        separate, together, same = evaluations(asked.jobs, negative)
        what = f"four configurations, {'a' if negative else 'no'} negative prompt"
        rows += [(f"{what}: rows of the net, one at a time", separate, None),
                 (f"{what}: rows of the net, together", together, None),
                 (f"{what}: ratio", together / separate, SHARED),
                 (f"{what}: images that are the same", float(same), 1.0)]  # fmt: skip
        broken |= together > SHARED * separate or not same
    if asked.run:
        edited, mapped = rates(asked.run)
        rows += [("editor lite, images a core second", edited, None),
                 ("anomaly lite, images a core second", mapped, None),
                 ("editor lite over anomaly lite", edited / mapped, FASTER)]  # fmt: skip
        broken |= edited < FASTER * mapped
    for name, value, limit in rows:
        print(f"{name:75} {value:10.4g}" + (f"   limit {limit}" if limit else ""))
    if asked.output:
        table = pl.DataFrame(rows, schema=["measure", "value", "limit"], orient="row", strict=False)
        table.write_csv(asked.output, separator="\t")
    return int(asked.hold and broken)


if __name__ == "__main__":
    sys.exit(main())

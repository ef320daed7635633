"""Measure SemiSynCXR's placement: its speed in comparison with a scalar loop, and the cost of the paper's 35,000 jobs.

    python benchmarks/semisyn.py [--jobs 700] [--scalar 40] [--output benchmarks/semisyn.tsv] [--hold]

The measurement uses one core and synthetic organ boxes. The scalar loop draws the same boxes one at a time, from frozen
distributions of scipy. With ``--hold`` the exit status is 1 if the placement is less than 20 times as fast, if the
boxes differ, or if the 35,000 jobs need more than two core minutes or 500 MB.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from scipy import stats  # noqa: E402
from scipy.integrate import cumulative_trapezoid  # noqa: E402

from cxr.base.hdf5 import ShardWriter  # noqa: E402
from cxr.base.tables import read_table, write_table  # noqa: E402
from cxr.base.vocabulary import FINDINGS, SIDES  # noqa: E402
from cxr.semisyn.findings.boxes import Places, overshoot_limits, size_bounds, to_frame  # noqa: E402
from cxr.semisyn.findings.catalogue import (  # noqa: E402  # noqa: E402  # noqa: E402
    CONSTANT,
    RATIO,
    SINGLES,
    Catalogue,
    Law,
    Prior,
    choose_sides,
    draw_prompt,
    parse_prompt,
    read_catalogue,
    zone_bounds,
)
from cxr.semisyn.findings.laws import GRID, scipy_law  # noqa: E402
from cxr.semisyn.placement.plan_jobs import (  # noqa: E402  # noqa: E402
    RATIO_STEP,
    TRIES,
    UNSIDED,
    Job,
    PlanOptions,
    draw_numbers,
    place_jobs,
    run_plan,
    run_shard,
)
from cxr.workflow.params import stage_options  # noqa: E402
from cxr.workflow.settings import Settings  # noqa: E402

TIMES, CPU_S, MB, SAME = 20, 120, 500, 0.01
POOL, PER_FINDING = 24_555, 5_000
"""The paper's number of healthy images, and of jobs per finding (a seventh of 35,000)."""
CHEST = tuple(
    np.array(box, np.float64)
    for box in ((70, 80, 235, 430), (280, 75, 445, 420), (190, 260, 360, 425), (0, 0, 512, 512))
)
SETTINGS = stage_options(Settings())
OPTIONS = SETTINGS["semisyn_placement"]


def jobs_of(catalogue: Catalogue, name: str, count: int) -> list[Job]:
    """Return ``count`` jobs of a finding, all on the same chest."""
    prompts = catalogue.findings[name].prompts
    draws = (draw_numbers(OPTIONS["seed"], name, index, 0)[0] for index in range(count))
    return [Job(f"{name}-{k}", "i", k, draw_prompt(prompts, uniform), CHEST) for k, uniform in enumerate(draws)]


def vectorised(catalogue: Catalogue, jobs: dict[str, list[Job]]) -> list[tuple]:
    """Place all jobs together; return (centre x, centre y, width, height) of each box, or (cardiothoracic ratio,)."""
    placed = (place_jobs(catalogue.findings[name], of, catalogue, **OPTIONS) for name, of in jobs.items())
    rows = [row for found in placed for _, boxes in found for row in boxes]
    return [row[5:9] if row[-1] is None else row[-1:] for row in rows]


def scalar(catalogue: Catalogue, jobs: dict[str, list[Job]]) -> list[tuple]:
    """Place all jobs box by box; return the same values as :func:`vectorised`."""
    boxes = []
    for name, of in jobs.items():
        prior = catalogue.findings[name].prior
        for job in of:
            _, coin, numbers = draw_numbers(OPTIONS["seed"], name, job.index, TRIES)
            named, zone = parse_prompt(job.prompt, catalogue.parser)
            if prior.placement == "heart":
                ratio = (CHEST[2][2] - CHEST[2][0]) / (CHEST[1][2] - CHEST[0][0])
                low = max(prior.minimum[0], 100 * (ratio + RATIO_STEP))
                boxes.append((_single(prior.laws[RATIO], numbers[0, 0, 0], low, 100.0) / 100,))
                continue
            for side in choose_sides(named, UNSIDED.get(name, "one"), coin):
                lung = SIDES.index(side)
                boxes.append(_box(prior, CHEST[lung], side, zone_bounds(zone, side, catalogue)[1], numbers[:, lung]))
    return boxes


def _box(prior: Prior, lung: np.ndarray, side: str, zone: tuple, uniforms: np.ndarray) -> tuple:
    one = Places(lung[None], CHEST[3][None], CHEST[2][None], np.array([side == "left"]), np.array([zone]))
    outside = overshoot_limits(prior, one, OPTIONS["bounds"])
    for numbers in uniforms:
        centre = _numbers(prior, "center", numbers[:2], zone[:2], zone[2:])
        (low,), (high,) = size_bounds(prior, np.array([centre]), outside, OPTIONS["bounds"])
        if (high < prior.minimum).any() or (low >= high + 1e-9).any():
            continue
        percent = (*centre, *_numbers(prior, "size", numbers[2:], low, high))
        x1, y1, x2, y2 = to_frame(np.array([percent]), one)[0]
        heart = CHEST[2]
        if side == "left" and x1 >= heart[0] and y1 >= heart[1] and x2 <= heart[2] and y2 <= heart[3]:
            continue
        return percent
    return (np.nan,) * 4


def _numbers(prior: Prior, element: str, uniforms: tuple, low: tuple, high: tuple) -> tuple:
    if element in prior.laws:
        return _pair(prior.laws[element], uniforms, low, high)
    laws = [prior.laws[name] for name in SINGLES[element]]
    return tuple(_single(*told) for told in zip(laws, uniforms, low, high, strict=True))


def _pair(law: Law, uniforms: tuple, low: tuple, high: tuple) -> tuple:
    (mean, other), sigma = law.parameters["mu"], np.array(law.parameters["sigma"])
    with np.errstate(divide="ignore"):
        (x1, y1), (x2, y2) = np.log(np.maximum(low, 0)), np.log(np.maximum(high, 0))
    deviation, slope = sigma[0, 0] ** 0.5, sigma[0, 1] / sigma[0, 0]
    rest = (sigma[1, 1] - slope * sigma[0, 1]) ** 0.5
    x = np.linspace(max(x1, mean - 9 * deviation), min(x2, mean + 9 * deviation), GRID)
    given = stats.norm(other + slope * (x - mean), rest)
    density = stats.norm(mean, deviation).pdf(x) * (given.cdf(y2) - given.cdf(y1))
    sums = cumulative_trapezoid(density, x, initial=0)
    first = np.interp(uniforms[0] * sums[-1], sums, x)
    second = stats.norm(other + slope * (first - mean), rest)
    bottom, top = second.cdf((y1, y2))
    return float(np.exp(first)), float(np.exp(second.ppf(bottom + uniforms[1] * (top - bottom))))


def _single(law: Law, uniform: float, low: float, high: float) -> float:
    if law.family == CONSTANT:
        return law.parameters["value"]
    of = scipy_law(law)
    first, last = of.cdf(low), of.cdf(high)
    return float(of.ppf(first + uniform * (last - first)))


def rate(work: Callable, catalogue: Catalogue, count: int) -> tuple[float, list[tuple]]:
    """Return (boxes per core second of ``work``, the boxes) for ``count`` jobs of each finding."""
    jobs = {name: jobs_of(catalogue, name, count) for name in FINDINGS}
    began = time.process_time()
    boxes = work(catalogue, jobs)
    return len(boxes) / (time.process_time() - began), boxes


def apart(first: list[tuple], second: list[tuple]) -> float:
    """Return the largest difference between two lists of boxes, in percent of the lung."""
    return max(abs(a - b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True))


def whole(folder: Path) -> tuple[float, int, int]:
    """Run plan and placement of the paper's jobs in one shard; return (core seconds, boxes, excluded jobs)."""
    generator = np.random.default_rng(2)
    shift = generator.integers(-15, 16, (POOL, 3, 4))
    names = [f"i{number:05d}" for number in range(POOL)]
    columns = {"image_id": names, "study_id": names, "shard": ["00"] * POOL}
    for place_of, organ in enumerate((*SIDES, "heart")):
        boxes = CHEST[place_of] + shift[:, place_of]
        columns |= {f"{organ}_{corner}": boxes[:, k] for k, corner in enumerate(("x1", "y1", "x2", "y2"))}
    write_table(folder / "healthy.parquet", pl.DataFrame(columns))
    with ShardWriter(folder / "frames.h5") as frames:
        for name in names:
            affine = np.array([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
            frames.append(name, to_original=affine, original_shape=np.array([2048, 2048], np.int32))
    (folder / "priors.yaml").write_text("lungs: none\n", encoding="utf-8")
    asked = SETTINGS["semisyn_placement_plan"] | {"per_finding": PER_FINDING, "spare": 0.0}
    began = time.process_time()
    run_plan(healthy=str(folder / "healthy.parquet"), plan=str(folder / "plan.parquet"), options=PlanOptions(**asked))
    run_shard(
        plan=str(folder / "plan.parquet"), healthy=str(folder / "healthy.parquet"), frames=str(folder / "frames.h5"),
        priors=str(folder / "priors.yaml"), output=str(folder / "00.parquet"),
        excluded=str(folder / "00.excluded.parquet"), shard="00", **OPTIONS,
    )  # fmt: skip
    seconds = time.process_time() - began
    return seconds, read_table(folder / "00.parquet").height, read_table(folder / "00.excluded.parquet").height


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=700, help="jobs of each finding, vectorised")
    parser.add_argument("--scalar", type=int, default=40, help="jobs of each finding, one by one")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--hold", action="store_true")
    asked = parser.parse_args()
    catalogue = read_catalogue()
    with tempfile.TemporaryDirectory() as folder:
        seconds, boxes, excluded = whole(Path(folder))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fast, _ = rate(vectorised, catalogue, asked.jobs)
    slow, boxes_of_loop = rate(scalar, catalogue, asked.scalar)
    difference = apart(rate(vectorised, catalogue, asked.scalar)[1], boxes_of_loop)
    rows = [
        ("placement, boxes a core second", fast, None),
        ("scalar loop, boxes a core second", slow, None),
        ("placement over scalar loop", fast / slow, TIMES),
        ("difference of their boxes, % of the lung", difference, SAME),
        (f"{PER_FINDING * len(FINDINGS)} jobs, core seconds", seconds, CPU_S),
        (f"{PER_FINDING * len(FINDINGS)} jobs, MB", memory, MB),
        ("their boxes", boxes, None),
        ("their excluded jobs", excluded, None),
    ]
    table = pl.DataFrame(rows, schema=["measure", "value", "limit"], orient="row", strict=False)
    for name, value, limit in rows:
        print(f"{name:40} {value:12.4g}" + (f"   limit {limit}" if limit else ""))
    if asked.output:
        table.write_csv(asked.output, separator="\t")
    broken = fast / slow < TIMES or seconds > CPU_S or memory > MB or difference > SAME
    return int(asked.hold and broken)


if __name__ == "__main__":
    sys.exit(main())

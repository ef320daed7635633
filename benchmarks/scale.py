"""Compute hours and disk space at the size of MIMIC-CXR from resources/costs.yaml (docs/reference/scale.md).

    python benchmarks/scale.py [--sets 10] [--gpus 1,8,64] [--cores-per-gpu 8] [--engines benchmarks/engines.tsv]

GPU seconds of an engine come from ``--engines``, a table of `engines.py --device cuda`, else from measurements of
`gpu.py` (the list ``measured`` in resources/costs.yaml), else from publications (on an A100 or V100). The table of
hours names the source of each number.
"""

import argparse
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl
import yaml

UNITS = Path(__file__).parents[1] / "resources/costs.yaml"
PROFILE = UNITS.parents[1] / "profiles/slurm/config.yaml"
GROUPED = {"dataset": "tables"}
"""{stage: its group in the profile slurm}, for stages whose group has another name."""
SHARDS = 64
STAGES = ("organs", "anomaly", "anatomy", "boxes")


class Work(NamedTuple):
    """Cost of a stage at full size, per unit: core seconds, GPU seconds, and stored bytes.

    number: number of units; every: number of units if no image were excluded; whose: source of the GPU seconds.
    """

    stage: str
    number: int
    every: int
    core_s: float
    gpu_s: float
    bytes: float
    whose: str = ""


class Measured(NamedTuple):
    """Measured seconds per image, and the name of the GPU."""

    seconds: float
    card: str


def works(units: dict, engines: str, sets: int, measured: Mapping[str, Measured]) -> Iterator[Work]:
    """Yield the work of every stage with the engines ``lite`` or ``paper``; ``measured`` has priority for GPU
    seconds."""
    counts = {name: count["number"] for name, count in units["counts"].items()}
    for stage, unit in units["cpu"].items():
        number, times = counts[unit["per"]], sets if unit.get("each_set") else 1
        every = counts["input"] if unit["per"] == "studies" else number
        yield Work(stage, number * times, every * times, unit.get("core_s", 0), 0, unit.get("bytes", 0))
        if stage == "reports":
            for name in STAGES:
                chosen = units[engines][name]
                ours = measured.get(chosen.get("engine"))
                theirs = f"others, {chosen['gpu']}" if "gpu" in chosen else ""
                gpu, whose = (ours.seconds, f"measured, {ours.card}") if ours else (chosen.get("gpu_s", 0), theirs)
                core = chosen.get("core_s", 0)
                yield Work(name, counts["studies"], counts["input"], core, gpu, units["bytes"][name], whose)


def table(header: tuple[str, ...], rows: list[tuple]) -> str:
    """Return a table in Markdown."""
    heading, *lines = ("|" + "".join(f" {cell} |" if str(cell) else "|" for cell in line) for line in (header, *rows))
    return "\n".join([heading, "|" + "---|" * len(header), *lines])


def told(number: float) -> str:
    """Format a number with two or three significant digits; "" for 0."""
    if not number:
        return ""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}" if number < 10 else f"{number:.0f}"


def totals(lite: list[Work], paper: list[Work]) -> str:
    """Return the table of hours and disk space of each stage."""
    rows = []
    for one, other in zip(lite, paper, strict=True):
        core, gpu = one.core_s * one.number / 3600, other.gpu_s * other.number / 3600
        room, whole = one.bytes * one.number / 1e9, one.bytes * one.every / 1e9
        rows.append(
            (one.stage, f"{one.number:,}", told(core), told(gpu), other.whose, told(one.bytes), told(room), told(whole))
        )
    core = sum(work.core_s * work.number for work in lite) / 3600
    gpu = sum(work.gpu_s * work.number for work in paper) / 3600
    rooms = (told(sum(work.bytes * getattr(work, name) for work in lite) / 1e9) for name in ("number", "every"))
    rows.append(("**all**", "", told(core), told(gpu), "", "", *rooms))
    header = ("stage", "how often", "core hours, `lite`", "GPU hours, the paper's nets", "whose", "bytes each", "GB")
    return table((*header, "GB if every image went on"), rows)


def jobs(lite: list[Work], paper: list[Work]) -> str:
    """Return the table of the seconds of one shard's job, for one threshold set. The stage dataset has one job per
    set."""
    rows = []
    for one, other in zip(lite, paper, strict=True):
        if one.stage in ("cohort", "pairs", "lesion masks", "start of jobs"):
            continue
        label, parts = ("dataset (all shards)", 1) if one.stage == "dataset" else (one.stage, SHARDS)
        each = paper[1].number / parts  # number of images of the stage frames
        core, gpu = one.core_s * each, other.gpu_s * each
        rows.append((label, told(core), told(gpu), "yes" if max(core, gpu) < 600 else "**no**"))
    return table(("a shard's job", "core seconds, `lite`", "GPU seconds, the paper's nets", "under 10 minutes"), rows)


def counted(units: dict) -> str:
    """Return the table of the hours of one GPU at a fraction of its peak speed, from the number of operations."""
    known, studies = units["counted"], units["counts"]["studies"]["number"]
    rows, every = [], 0.0
    for stage, net in known["nets"].items():
        parts = {kind: number for kind, number in net.items() if kind in known["tflop_s"]}
        seconds = sum(number / known["tflop_s"][kind] / known["share"] for kind, number in parts.items())
        every += seconds
        operations = " + ".join(f"{number:g} {kind}" for kind, number in parts.items())
        rows.append((stage, operations, f"{seconds:.2g}", told(seconds * studies / 3600)))
    rows.append(("**all**", "", f"{every:.2g}", told(every * studies / 3600)))
    card = f"one {known['card']} card at {known['share']:.0%} of its rate"
    return table(("stage", "TFLOP an image", f"seconds an image, {card}", "hours"), rows)


def with_findings(units: dict) -> str:
    """Return the table of the same GPU's hours if only images whose reports need an anomaly map are edited."""
    known, studies = units["counted"], units["counts"]["studies"]["number"]
    hours = {
        stage: sum(number / known["tflop_s"][kind] for kind, number in net.items() if kind in known["tflop_s"])
        / known["share"]
        * studies
        / 3600
        for stage, net in known["nets"].items()
    }
    rows = [
        (
            name,
            f"{share:.1%}",
            told(share * hours["anomaly"]),
            told(sum(hours.values()) - (1 - share) * hours["anomaly"]),
        )
        for name, share in {"all images": 1.0, **known["with_findings"]["shares"]}.items()
    ]
    return table(("edited as often as", "share", "hours of anomaly", "hours of all stages"), rows)


def walls(lite: list[Work], paper: list[Work], gpus: tuple[int, ...], cores_per_gpu: int, units: dict) -> str:
    """Return the table of wall hours: with the paper's nets on ``gpus`` GPUs and their cores, and with `lite` on the
    cores.

    Stages run one after another, in the profile slurm's groups of shards. A job uses one core, and one GPU if needed.
    """
    sizes, rows = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))["group-components"], []
    for count in gpus:
        cores = count * cores_per_gpu
        nets, alone = (sum(wall(work, count, cores, units, sizes) for work in works) / 3600 for works in (paper, lite))
        rows.append((count, cores, told(nets), told(nets / 24), told(alone)))
    return table(("GPUs", "cores", "wall hours, the paper's nets", "days", "wall hours, `lite`, cores alone"), rows)


def wall(work: Work, gpus: int, cores: int, units: dict, sizes: dict[str, int]) -> float:
    """Return a stage's wall seconds: number of rounds in which its jobs fill all GPUs or cores, times the seconds of a
    job.

    ``sizes``: {group: number of shards per job}.
    """
    if work.stage == "start of jobs" or not work.gpu_s + work.core_s:  # starts are counted with each job
        return 0
    stage, sets = work.stage.split()[0], max(1, work.number // units["counts"]["studies"]["number"])
    group, slots = (f"{stage}-gpu", gpus) if work.gpu_s else (f"{stage}-cpu", cores)
    parts = {"cohort": 1, "dataset": sets}.get(stage, SHARDS * sets)
    size = min(parts, sizes.get(group) or sizes.get(GROUPED.get(stage, stage), 1))
    starts = (size + 1) * units["cpu"]["start of jobs"]["core_s"]
    seconds = size * (work.gpu_s + work.core_s) * work.number / parts + starts
    waves = math.ceil(math.ceil(parts / size) / slots)
    # if every job is one shard and all run at once, the largest shard determines the time; else sizes average out
    return waves * seconds * (units["largest_shard"] if waves == size == 1 < parts else 1)


def measured_in(path: str | None) -> dict[str, Measured]:
    """Return {engine: its fastest batch} from a table of `engines.py`, without measurements on a CPU."""
    if not path:
        return {}
    rows = pl.read_csv(path, separator="\t").filter(~pl.col("device").str.starts_with("CPU"))
    return _fastest((row["engine"], row["s_per_image"], row["device"]) for row in rows.iter_rows(named=True))


def measured_by_us(units: dict) -> dict[str, Measured]:
    """Return {engine: its fastest batch with the default settings} from the measurements of `benchmarks/gpu.py`."""
    found = ((re.fullmatch(r"(\w+), \d+ at a time", row["what"]), row) for row in units.get("measured", ()))
    return _fastest((hit[1], row["value"], row["card"]) for hit, row in found if hit and row["unit"] == "s an image")


def _fastest(rows: Iterator[tuple[str, float, str]]) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for engine, seconds, card in rows:
        found[engine] = min(Measured(seconds, card), found.get(engine, Measured(math.inf, "")))
    return found


def report(
    sets: int = 10,
    gpus: tuple[int, ...] = (1, 8, 64),
    cores_per_gpu: int = 8,
    engines: str | None = None,
    units: Path = UNITS,
) -> str:
    """Return all tables; ``units``: file of the unit costs."""
    units = yaml.safe_load(units.read_text(encoding="utf-8"))
    measured = measured_by_us(units) | measured_in(engines)
    lite, paper = (list(works(units, name, sets, measured)) for name in ("lite", "paper"))
    shown = [
        totals(lite, paper),
        jobs(lite, paper),
        walls(lite, paper, gpus, cores_per_gpu, units),
        counted(units),
        with_findings(units),
    ]
    return "\n\n".join(shown) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=10, help="number of threshold sets with a dataset")
    parser.add_argument("--gpus", default="1,8,64")
    parser.add_argument("--cores-per-gpu", type=int, default=8)
    parser.add_argument("--engines", help="a table that engines.py wrote on a GPU")
    given = parser.parse_args()
    gpus = tuple(int(count) for count in given.gpus.split(","))
    print(report(given.sets, gpus, given.cores_per_gpu, given.engines), end="")


if __name__ == "__main__":
    main()

"""A mix of the embedded cohort: the facts, texts and samples of a finished run, made without Snakemake."""

from dataclasses import asdict
from pathlib import Path

from cxr.radvlm.filtered import filter_texts
from cxr.radvlm.filtered.engine import FilterOptions
from cxr.radvlm.instructions import join_parts, write_part
from cxr.radvlm.instructions.mix import mix_rows
from cxr.radvlm.settings import FactSources
from cxr.radvlm.sources.read_own import run_shard, run_tables
from cxr.radvlm.sources.read_sources import run_splits

OPTIONS = FactSources()
SMALLEST, SEED = 64, 42
FAMILIES = {"own": "own"}


def inputs(results, shard: str) -> dict[str, str]:
    found = {stage: str(results / f"{stage}/{shard}.h5") for stage in ("frames", "organs", "anatomy")}
    masks = results / "masks/default"
    return found | {
        "manifest": str(results / "cohort/images.parquet"), "cohort": str(results / f"cohort/{shard}.parquet"),
        "reports": str(results / f"reports/{shard}.jsonl"), "findings": str(masks / f"{shard}.findings.parquet"),
        "masks": str(masks / f"{shard}.h5"),
    }  # fmt: skip


NAMES = {
    "facts": "facts.parquet", "texts": "texts.jsonl", "excluded": "excluded.parquet", "counts": "counts.tsv",
    "conservation": "conservation.tsv",
}  # fmt: skip


def read_all(results, folder, options=OPTIONS):
    """Read every shard of a finished run into a folder, and join them."""
    shards = sorted(path.stem for path in (results / "frames").glob("??.h5"))
    for shard in shards:
        out = {name: str(folder / f"{shard}.{file}") for name, file in NAMES.items()}
        images = str(folder / f"{shard}.images.parquet")
        run_shard(**inputs(results, shard), images=images, options=options, smallest=SMALLEST, **out)
    names = NAMES | {"images": "images.parquet"}
    parts = {name: [str(folder / f"{shard}.{file}") for shard in shards] for name, file in names.items()}
    run_tables(**parts, **{f"{name}_out": str(folder / file) for name, file in names.items()})
    return folder


def sources(results, folder: Path) -> Path:
    """Write what the stages sources and filtered make of the source own; returns the folder."""
    read_all(results, folder)
    conflicts = str(folder / "conflicts.parquet")
    run_splits(images=[str(folder / "images.parquet")], conflicts_out=conflicts, families=FAMILIES)
    options = FilterOptions("rules", "drop")
    filter_texts.run(
        texts=[str(folder / "texts.jsonl")], facts=[str(folder / "facts.parquet")],
        texts_out=[str(folder / "filtered.jsonl")], phrases_out=[str(folder / "phrases.jsonl")],
        excluded=[str(folder / "filtered.parquet")], agreement=[str(folder / "agreement.tsv")],
        options=options, execution={}, attrs={},
    )  # fmt: skip
    return folder


def instructions(results, made: Path, folder: Path, mix=None, conversations=(), pairs=None, **settings) -> Path:
    """Write a mix of the source own; ``made``: what :func:`sources` wrote; ``pairs``: {pairs, masks}, files, of another
    dataset than the run's. Returns the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = sorted(path.stem for path in (results / "frames").glob("??.h5"))
    rows = mix_rows(mix or {"preset": "own", "tasks": {}}, {"own": "own"})
    told = {"smallest": 64} | settings
    pairs = pairs or {
        "pairs": [str(results / f"dataset/default/{split}.jsonl") for split in ("train", "validate", "test")],
        "masks": [str(results / f"masks/default/{shard}.h5") for shard in shards],
    }
    part = {name: str(folder / f"own.{ending}") for name, ending in PARTS.items()}
    write_part.run(
        images=str(made / "images.parquet"), facts=str(made / "facts.parquet"), texts=str(made / "filtered.jsonl"),
        phrases=str(made / "phrases.jsonl"), conflicts=str(made / "conflicts.parquet"),
        frames=[str(results / f"frames/{shard}.h5") for shard in shards], **part, conversations=conversations, **pairs,
        source="own", rows=list(map(asdict, rows)), seed=SEED, **told,
    )  # fmt: skip
    out = {name: str(folder / file) for name, file in FILES.items()}
    join_parts.run(
        lines=[part["lines_out"]], indices=[part["index"]], excluded=[part["excluded"]], **out,
        rows=list(map(asdict, rows)), families=FAMILIES, seed=SEED,
    )  # fmt: skip
    return folder


PARTS = {"lines_out": "jsonl", "index": "index.parquet", "excluded": "excluded.tsv"}
FILES = {
    "train": "train.jsonl", "validate": "validate.jsonl", "test": "test.jsonl", "exchanged_out": "exchanged.jsonl",
    "table1_out": "table1.tsv", "conservation_out": "conservation.tsv",
}  # fmt: skip

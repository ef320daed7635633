"""Shared tools of tests of whole runs: the bytes of a run's results, and a copy of the repository to edit."""

import re
import shutil
from pathlib import Path

from conftest import ROOT
from cxr.base.hdf5 import Shard
from cxr.base.vocabulary import SPLITS


def pair_lines(directory: Path) -> dict[str, bytes]:
    return {split: (directory / f"results/dataset/default/{split}.jsonl").read_bytes() for split in SPLITS}


def pair_lines_of_any_code(directory: Path) -> dict[str, bytes]:
    """The pairs without the digest of the code: for runs from a copy of the repository that a test has edited."""
    return {split: re.sub(rb'"reader": "\w+-', b"", text) for split, text in pair_lines(directory).items()}


def arrays(directory: Path) -> dict[tuple[str, str, str], bytes]:
    """Every array row of every image stage and of the masks, by (stage, field, id): no word of shards."""
    rows = {}
    for stage, key, fields in (
        ("frames", "image_id", ("image", "to_original", "original_shape")),
        ("organs", "image_id", ("mask",)),
        ("anomaly", "image_id", ("anomaly", "brighter")),
        ("anatomy", "image_id", ("mask",)),
        ("masks/default", "mask_id", ("mask",)),
    ):
        for path in sorted((directory / "results" / stage).glob("*.h5")):
            with Shard(path, key=key) as shard:
                for row_id in shard.ids:
                    for field in fields:
                        rows[stage, field, row_id] = shard.get(field, row_id).tobytes()
    return rows


def copy_repository(target: Path) -> Path:
    """Copy the repository's working files, for a test that edits them, and return where they are."""
    names = ("config.yaml", "Snakefile", "envs", "profiles", "report", "resources", "rules", "scripts", "slurm")
    target.mkdir(parents=True)
    for path in (ROOT / name for name in names):
        if path.is_symlink():
            (target / path.name).symlink_to(path.readlink())
        elif path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, target)
    return target

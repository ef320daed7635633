"""Compute features of the edited or real images of a shard: one file per engine and shard, which serves as cache."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import polars as pl

from cxr.base.engines import Setup
from cxr.base.hdf5 import Shard, Shards, ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import read_table
from cxr.semisyn.realism.engine import FeatureEngine, load_features


def run_shard(
    *, plan: str, edited: list[str], output: str, extractor: str, engine_settings: dict, attrs: dict,
    compute: dict | None = None, **files: str,
) -> None:  # fmt: skip
    """Write the features of the edited images of a shard, key image_id = job.

    ``plan``: prompts of the jobs; ``edited``: the edited shards of each engine; ``extractor``: the feature engine.
    Writes ``feature`` float32 (N, D) and ``similarity`` float32 (N,), NaN if the
    engine uses no prompt.
    """
    engine = load_features(extractor, Setup.for_engine(engine_settings, files, compute, extractor))
    prompts = dict(read_table(plan).select("job_id", "prompt").iter_rows())
    with Shards(edited) as shards:
        _write_features(output, shards.ids, shards, prompts, engine, attrs | {"extractor": extractor})


def run_reference(
    *, frames: str, boxes: str, output: str, extractor: str, engine_settings: dict, attrs: dict,
    compute: dict | None = None, **files: str,
) -> None:  # fmt: skip
    """Write the features of the real images of a shard of frames. ``boxes``: the table of their boxes."""
    engine = load_features(extractor, Setup.for_engine(engine_settings, files, compute, extractor))
    names = sorted(set(read_table(boxes)["image_id"]))
    with Shards(frames) as shards:
        _write_features(output, names, shards, dict.fromkeys(names, ""), engine, attrs | {"extractor": extractor})


def _write_features(
    output: str, names: list[str], shards: Shards, prompts: Mapping[str, str], engine: FeatureEngine, attrs: dict
) -> None:
    empty = {"feature": ((0,), np.float32), "similarity": ((), np.float32)} if not names else {}
    with ShardWriter(output, attrs=attrs | {"weights": engine.weights}, empty=empty) as writer:
        rows = _feature_rows(engine, names, shards, prompts)
        for name, feature, similarity in progress(rows, len(names), "features"):
            writer.append(name, feature=feature.astype(np.float32), similarity=np.float32(similarity))


def _feature_rows(
    engine: FeatureEngine, names: list[str], shards: Shards, prompts: Mapping[str, str]
) -> Iterator[tuple[str, np.ndarray, float]]:
    for first in range(0, len(names), engine.batch):
        part = names[first : first + engine.batch]
        images = [shards.shard_of(name).get("image", name) for name in part]
        batch_features = engine.features(images, [prompts[name] for name in part])
        fits = np.full(len(part), np.nan) if batch_features.similarity is None else batch_features.similarity
        yield from zip(part, batch_features.feature, fits, strict=True)


def read_features(paths: Iterable[str], names: set[str], field: str = "feature") -> dict[str, np.ndarray]:
    """Return {image or job: its row of a field} for those ``names`` that are in the shards."""
    features = {}
    for path in paths:
        with Shard(path) as shard:
            features |= {name: shard.get(field, name) for name in shard.ids if name in names}
    return features


def stack_features(features: Mapping[str, np.ndarray], names: pl.Series) -> np.ndarray:
    """Return the features of ``names`` as an array (N, …). Raises KeyError for a missing one."""
    return np.stack([features[name] for name in names])

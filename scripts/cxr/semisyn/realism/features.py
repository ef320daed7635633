"""Compute features of the edited or real images of a shard: one file per engine and shard, which serves as cache."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from cxr.base.engines import Setup
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import read_table
from cxr.semisyn.realism.engine import load_features


@dataclass(frozen=True)
class FeaturesOptions:
    """extractor: the engine's name; own: its own settings."""

    extractor: str
    own: dict = field(default_factory=dict)


def run_shard(
    *, plan: str, edited: list[str], output: str, options: FeaturesOptions, attrs: dict, compute: dict | None = None,
    **files: str,
) -> None:  # fmt: skip
    """Write the features of the edited images of a shard, key image_id = job.

    ``plan``: prompts of the jobs; ``edited``: the edited shards of each engine; ``files``: of the extractor. Writes
    ``feature`` float32 (N, D) and ``similarity`` float32 (N,), NaN if the engine uses no prompt.
    """
    setup = Setup.for_engine(options.own, files, compute, options.extractor)
    prompts = dict(read_table(plan).select("job_id", "prompt").iter_rows())
    with ExitStack() as stack:
        shards = [stack.enter_context(Shard(path)) for path in edited]
        place = {name: shard for shard in shards for name in shard.ids}
        _write_features(output, sorted(place), place, prompts, options, attrs, setup)


def run_reference(
    *, frames: str, boxes: str, output: str, options: FeaturesOptions, attrs: dict, compute: dict | None = None,
    **files: str,
) -> None:  # fmt: skip
    """Write the features of the real images of a shard of frames. ``boxes``: the table of their boxes."""
    setup = Setup.for_engine(options.own, files, compute, options.extractor)
    with Shard(frames) as shard:
        names = sorted(set(read_table(boxes)["image_id"]))
        place = dict.fromkeys(names, shard)
        _write_features(output, names, place, dict.fromkeys(names, ""), options, attrs, setup)


def _write_features(
    output: str,
    names: list[str],
    place: Mapping[str, Shard],
    prompts: Mapping[str, str],
    options: FeaturesOptions,
    attrs: dict,
    setup: Setup,
) -> None:
    engine = load_features(options.extractor, setup)
    empty = {"feature": ((0,), np.float32), "similarity": ((), np.float32)} if not names else {}
    shard_attrs = attrs | {"extractor": options.extractor, "weights": engine.weights}
    with ShardWriter(output, attrs=shard_attrs, empty=empty) as writer:
        for name, feature, similarity in progress(_feature_rows(engine, names, place, prompts), len(names), "features"):
            writer.append(name, feature=feature.astype(np.float32), similarity=np.float32(similarity))


def _feature_rows(
    engine, names: list[str], place: Mapping[str, Shard], prompts: Mapping[str, str]
) -> Iterator[tuple[str, np.ndarray, float]]:
    for first in range(0, len(names), engine.batch):
        part = names[first : first + engine.batch]
        images = [place[name].get("image", name) for name in part]
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

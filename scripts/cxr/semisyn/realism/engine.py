"""Interface of the feature engines, and computation of the features of a shard's images. An engine's module declares
its metrics in ``METRICS``, {kind: metric name}. The kinds are ``frechet`` and ``kernel`` (distances between edited and
real images) and ``similarity`` (of an image and its prompt). A metric may be named fid only if it uses FID's original
net. The module's ``load(setup)`` returns a :class:`FeatureEngine`."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.hdf5 import Shards, ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import read_table


class Features(NamedTuple):
    """Features of N images. feature: float32 (N, D); similarity: of image and prompt, float32 (N,), or None."""

    feature: np.ndarray
    similarity: np.ndarray | None = None


class FeatureEngine(NamedTuple):
    """A loaded feature engine. features: function that takes up to ``batch`` frames, uint8 (512, 512), and as many
    prompts; weights: digest of its weights."""

    features: Callable[[Sequence[np.ndarray], Sequence[str]], Features]
    weights: str
    batch: int = 1


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(path: str | Path) -> str:
    """Return a digest of a file's bytes."""
    return hashlib.blake2b(sha256_of(path).encode(), digest_size=16).hexdigest()


def run_shard(
    *, output: str, extractor: str, engine_settings: dict, attrs: dict, edited: list[str] | None = None, plan: str = "",
    frames: str = "", boxes: str = "", compute: dict | None = None, **files: str,
) -> None:  # fmt: skip
    """Write the features of a shard's edited images (by job_id), or of the real ``frames`` that have ``boxes`` (by
    image_id): ``feature`` float32 (N, D), and ``similarity`` float32 (N,) of image and prompt, NaN if not computed."""
    setup = Setup.of_job(files, compute, extractor, engine_settings=engine_settings)
    engine = engine_module("cxr.semisyn.realism", extractor).load(setup)
    image_ids = sorted(set(read_table(boxes)["image_id"])) if boxes else ()
    prompts = dict(read_table(plan).select("job_id", "prompt").iter_rows()) if plan else dict.fromkeys(image_ids, "")
    with Shards(frames if edited is None else edited) as shards:
        names = shards.ids if plan else list(prompts)
        empty = {"feature": ((1,), np.float32), "similarity": ((), np.float32)} if not names else {}
        attrs = attrs | {"extractor": extractor, "weights": engine.weights}
        batches = [names[first : first + engine.batch] for first in range(0, len(names), engine.batch)]
        with ShardWriter(output, attrs=attrs, empty=empty) as writer:
            for batch in progress(batches, len(batches), "features"):
                images = [shards.get("image", name) for name in batch]
                feature, similarity = engine.features(images, [prompts[name] for name in batch])
                fits = np.full(len(batch), np.nan) if similarity is None else similarity
                for name, row, fit in zip(batch, feature, fits, strict=True):
                    writer.append(name, feature=row.astype(np.float32), similarity=np.float32(fit))

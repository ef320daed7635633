"""Run the organs stage for its tests: write frames and read verdicts."""

from pathlib import Path

import numpy as np

from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.organs import segment_organs
from cxr.imaging.organs.settings import OrgansSettings

OPTIONS = OrgansSettings()


def write_frames(path: Path, pictures: dict[str, np.ndarray], fit: str = "pad") -> str:
    """Write a shard of frames of original pictures of any shape."""
    with ShardWriter(path) as writer:
        for name, picture in pictures.items():
            affine = fit_affine(picture.shape, 512, fit)
            writer.append(
                name,
                image=to_frame(picture, affine, 512),
                to_original=affine,
                original_shape=np.array(picture.shape, np.int32),
            )
    return str(path)


def verdicts_of(
    folder: Path, frames: str, options: OrgansSettings = OPTIONS, threads: int = 1, **files: str
) -> dict[str, tuple[str, str]]:
    """Run the stage; return {image_id: (reason, detail)}, empty ones for an accepted image. Nothing may be lost.

    Writes ``out<threads>.h5`` and ``excluded<threads>.parquet`` into the folder. ``files``: the engine's.
    """
    output, excluded = folder / f"out{threads}.h5", folder / f"excluded{threads}.parquet"
    segment_organs.run_shard(
        frames=frames,
        output=output,
        excluded=excluded,
        options=options,
        attrs={"stage": "organs"},
        threads=threads,
        compute={"device": "cpu", "batch": 8},
        **files,
    )
    with Shard(output) as shard:
        accepted = dict.fromkeys(shard.ids, ("", ""))
    rows = {name: rest for name, *rest in read_table(excluded).select("image_id", "reason", "detail").rows()}
    assert len(accepted) + len(rows) == len({*accepted, *rows})
    return accepted | {name: tuple(rest) for name, rest in rows.items()}

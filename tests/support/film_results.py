"""The stages frames, organs, anomaly and anatomy with lite engines over some pictures: results as a run leaves them."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from cxr.base.jobs import settings_arguments
from cxr.base.tables import write_table
from cxr.imaging.anatomy import segment_anatomy
from cxr.imaging.anatomy.settings import AnatomySettings
from cxr.imaging.anomaly import map_anomalies
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.imaging.cohort.rows import SHARD
from cxr.imaging.frames import make_frames
from cxr.imaging.organs import segment_organs
from cxr.imaging.organs.settings import OrgansSettings
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings


def film_results(folder: Path, pictures: Mapping[str, Path]) -> Path:
    """Run the stages over pictures {image_id: file}, one shard, and return ``folder``, the results."""
    options, rest = stage_options(Settings()), {"attrs": {}, "threads": 1}
    for stage in ("cohort", "frames", "organs", "anomaly", "anatomy"):
        (folder / stage).mkdir(parents=True)
    rows = [
        {"image_id": name, "study_id": name, "subject_id": name, "split": "test", "path": str(path), "rank": 0}
        for name, path in pictures.items()
    ]
    cohort = str(folder / "cohort/00.parquet")
    write_table(cohort, pl.DataFrame(rows, schema={name: one.kind for name, one in SHARD.items()}), SHARD)

    def files(stage: str) -> dict[str, str]:
        return {"output": str(folder / stage / "00.h5"), "excluded": str(folder / stage / "00.excluded.parquet")}

    made = {stage: str(folder / stage / "00.h5") for stage in ("frames", "organs", "anomaly")}
    corrected = str(folder / "frames/00.corrected.parquet")
    chosen = settings_arguments(make_frames.run_shard, options["frames"])
    make_frames.run_shard(cohort=cohort, **files("frames"), corrected=corrected, **chosen, **rest)
    frames = made.pop("frames")
    organs = {"options": OrgansSettings.from_dict(options["organs"]), "frames": frames}
    segment_organs.run_shard(**files("organs"), **organs, **rest)
    maps = {"options": AnomalySettings.from_dict(options["anomaly"]), "frames": frames, "organs": made["organs"]}
    map_anomalies.run_shard(**files("anomaly"), **maps, **rest)
    segment_anatomy.run_shard(
        **files("anatomy"), **made, frames=frames, options=AnatomySettings.from_dict(options["anatomy"]), **rest
    )
    return folder

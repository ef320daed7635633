"""An engine is added in three places: its module, its name in the stage's settings, and its environment."""

import shutil

import polars as pl
import pytest

from conftest import snakemake, write_settings
from whole_runs import copy_repository

pytestmark = pytest.mark.slow
CODE = '''"""The engine corner: one box in the upper left corner of each image."""

import numpy as np

from cxr.base.vocabulary import BOX_CLASSES
from cxr.imaging.boxes.engine import Detections


class CornerEngine:
    """Finds the same box everywhere."""

    class_names = BOX_CLASSES
    image_ids = None

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """See :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        return Detections(np.array([[0.0, 0.0, 64.0, 64.0]]), np.array([0.9]), ["Nodule/Mass"])


def load(options: object, setup: object = None) -> CornerEngine:
    """Load the engine."""
    return CornerEngine()
'''


def test_an_engine_of_the_boxes_is_added_and_run(tmp_path):
    root = copy_repository(tmp_path / "project")
    (root / "scripts/cxr/imaging/boxes/corner.py").write_text(CODE)
    shutil.copy(root / "envs/boxes-lite.yaml", root / "envs/boxes-corner.yaml")
    path = root / "scripts/cxr/imaging/boxes/settings.py"
    text, old = path.read_text(), 'Literal["lite", "table", "ultralytics", "scaled_yolov4"]'
    assert text.count(old) == 1
    path.write_text(text.replace(old, 'Literal["lite", "table", "ultralytics", "scaled_yolov4", "corner"]'))
    folder = tmp_path / "run"
    folder.mkdir()
    write_settings(
        folder, {"phantom": {"subjects": 6, "studies": 6}, "cohort": {"shards": 1}, "boxes": {"engine": "corner"}}
    )
    snakemake(folder, "boxes", root=root)
    boxes = pl.read_parquet(folder / "results/boxes/00.parquet")
    frames = pl.read_parquet(folder / "results/cohort/00.parquet")["study_id"].n_unique()
    assert boxes.select("x1", "y1", "x2", "y2", "class_name").unique().rows() == [(0.0, 0.0, 64.0, 64.0, "Nodule/Mass")]
    assert 0 < len(boxes) <= frames

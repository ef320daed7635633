"""The benchmark of storage: every format restores the rows and counts its files, and a faulty format is detected."""

import importlib.util
from functools import partial

import numpy as np
import pytest

from conftest import ROOT

spec = importlib.util.spec_from_file_location("storage", ROOT / "benchmarks" / "storage.py")
storage = importlib.util.module_from_spec(spec)
spec.loader.exec_module(storage)

random = np.random.default_rng(0)
ROWS = {
    "masks": random.random((3, 16, 32, 64)) < 0.1,
    "picture": random.integers(0, 256, (3, 32, 64), np.uint8),
    "map": random.integers(0, 2, (3, 32, 64), np.uint8),
}
CASES = [(kind, name, way) for kind, rows in ROWS.items() for name, way in storage.ways(kind, rows[0])]


@pytest.mark.parametrize(("kind", "name", "way"), CASES, ids=[f"{kind}: {name}" for kind, name, _ in CASES])
def test_every_way_keeps_every_bit(kind, name, way):
    found = storage.measure(way, ROWS[kind])  # compares
    tree = name.startswith("PNG")
    assert found["files"] == ((16 if kind == "masks" else 1) if tree else pytest.approx(1 / 3))
    assert found["bytes"] > 64


def test_a_way_that_loses_a_bit_is_noticed():
    lossy = storage.hdf5(storage.zstd(1), decode=partial(np.bitwise_and, 254))
    with pytest.raises(AssertionError):
        storage.measure(lossy, ROWS["picture"])


def test_rows_are_taken_from_a_run(workflow_run):
    found = storage.arrays(workflow_run / "results", "anatomy", "mask", 2)
    assert found.shape == (2, 16, 512, 512)
    assert found.any(axis=(2, 3)).sum() > 20
    assert storage.arrays(workflow_run / "results", "masks", "mask", 3).shape == (3, 512, 512)

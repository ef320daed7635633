"""The benchmark of the masks: its limits."""

import importlib.util

import pytest

from conftest import ROOT

spec = importlib.util.spec_from_file_location("benchmark_of_masks", ROOT / "benchmarks" / "masks.py")
masks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(masks)

SLOW = "masks come at 199 images a core second, fewer than 200"
LONG = "a sweep of 20 sets takes 6.1 times one set's time, more than 6"


@pytest.mark.parametrize(
    ("speed", "times", "said"),
    [(200.0, 6.0, []), (199.0, 6.0, [SLOW]), (200.0, 6.1, [LONG]), (199.0, 6.1, [SLOW, LONG])],
)
def test_limits_are_those_of_one_set_and_of_the_longest_sweep(speed, times, said):
    rows = [{"what": masks.VECTORISED, "sets": 1, "images_per_core_s": speed, "times_one_set": None}]
    rows += [{"what": masks.SWEEP, "sets": 1, "images_per_core_s": 1.0, "times_one_set": 1.0}]
    rows += [{"what": masks.SWEEP, "sets": 20, "images_per_core_s": 1.0, "times_one_set": times}]
    assert masks.broken(rows) == said


def test_the_sets_of_the_longest_sweep_differ():
    """Equal ones would share all work, and the time of 20 would be that of fewer."""
    sets = masks.threshold_sets(20)
    assert len(sets) == len({str(one) for one in sets.values()}) == 20

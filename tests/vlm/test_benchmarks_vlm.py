"""The benchmark of vision-language models calls the code as it is now, and both of its ways give the same losses."""

import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import vlm


@pytest.mark.slow
def test_the_benchmark_of_training_runs_and_its_two_ways_agree(tmp_path):
    row = vlm.of_training(tmp_path)  # it stops where the losses differ
    assert row["ratio"] > 0

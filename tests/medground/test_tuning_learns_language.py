"""A tiny model learns to read: on real lines of `cells` and `ils`, with queries swapped and with a constant query."""

from collections import defaultdict

import numpy as np
import pytest

from conftest import SLICE, snakemake, write_settings
from cxr.base.tables import read_lines, write_lines
from cxr.geometry.unions import union_iou
from cxr.vlm.reading import answer_iou
from vlm_runs import ASKING, OPTIONS, RECIPE, ask, tune

pytestmark = pytest.mark.slow
PICTURES = 16


def pairs_of(lines) -> list[tuple[dict, dict]]:
    """Return of each image two single queries whose boxes share nothing."""
    held = defaultdict(list)
    for line in lines:
        if line["kind"] == "single" and not line["trivial"]:
            held[line["source"], line["image_id"]].append(line)
    found = []
    for _, own in sorted(held.items()):
        apart = (
            (one, other)
            for at, one in enumerate(own)
            for other in own[at + 1 :]
            if union_iou(np.array(one["boxes"]), np.array(other["boxes"])) == 0
        )
        found += [pair for pair in [next(apart, None)] if pair]
    return found


@pytest.fixture(scope="module")
def medground_run(tmp_path_factory):
    """The dataset of the slice's films and of the drawn pictures."""
    directory = write_settings(tmp_path_factory.mktemp("medground"), SLICE)
    snakemake(directory, "medground_dataset")
    return directory


@pytest.fixture(scope="module")
def pairs(medground_run):
    found = pairs_of(read_lines(medground_run / "results/medground/dataset/train.jsonl"))
    of = {source: [pair for pair in found if pair[0]["source"] == source] for source in ("cells", "ils")}
    assert all(of.values())
    half = min(len(of["ils"]), PICTURES // 2)
    return of["ils"][:half] + of["cells"][: PICTURES - half]


@pytest.fixture(scope="module")
def shards(medground_run):
    return [str(path) for path in sorted(medground_run.glob("results/medground/sources/*/*.h5"))]


def given_of(folder, lines, shards) -> dict:
    write_lines(folder / "lines.jsonl", lines)
    return {"lines": str(folder / "lines.jsonl"), "pictures": shards}


def scores(path, lines) -> dict[str, float]:
    """Return {query: IoU of its answer with the boxes that ``lines`` give it}."""
    true = {line["query_id"]: np.array(line["boxes"]) for line in lines}
    return {
        line["sample_id"]: answer_iou(line["text"], line["convention"], line["seen"], true[line["sample_id"]])
        for line in read_lines(path)
    }


def tuned(folder, lines, shards):
    from dataclasses import replace

    recipe = RECIPE | {"updates": 300, "batch": 16, "micro_batch": 16, "learning_rate": 4e-3}
    options = replace(OPTIONS, recipe=recipe, side=112)
    return tune(folder, given_of(folder, lines, shards), options, checkpoint_every=1000)


def test_the_query_decides(tmp_path, pairs, shards):
    lines = [line for pair in pairs for line in pair]
    run = tuned(tmp_path, lines, shards)
    given = given_of(tmp_path, lines, shards)
    ious = scores(ask(tmp_path / "right.jsonl", given, run, ASKING), lines)
    right = [min(ious[one["query_id"]], ious[other["query_id"]]) for one, other in pairs]
    print(f"IoU {np.mean(list(ious.values())):.3f}, SS {np.mean(np.array(right) > 0.5):.3f}")
    assert np.mean(list(ious.values())) >= 0.80
    assert np.mean(np.array(right) > 0.5) >= 0.80
    exchanged = [
        one | {"query": other["query"]} for pair in pairs for one, other in (pair, pair[::-1])
    ]  # the boxes stay, the queries change places
    swapped = scores(ask(tmp_path / "swapped.jsonl", given_of(tmp_path, exchanged, shards), run, ASKING), lines)
    print(f"swapped {np.mean(list(swapped.values())):.3f}")
    assert np.mean(list(swapped.values())) <= 0.05


def test_a_constant_query_tells_nothing(tmp_path, pairs, shards):
    lines = [line | {"query": "the region"} for pair in pairs for line in pair]
    run = tuned(tmp_path, lines, shards)
    ious = scores(ask(tmp_path / "constant.jsonl", given_of(tmp_path, lines, shards), run, ASKING), lines)
    right = [min(ious[one["query_id"]], ious[other["query_id"]]) > 0.5 for one, other in pairs]
    assert sum(right) == 0  # one answer cannot be both boxes

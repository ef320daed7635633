"""A metric of masks is added in two places, its function and the paper's values: tables, page and charts show it."""

import pytest
from PIL import Image

from conftest import snakemake, write_settings
from cxr.base.tables import read_table
from whole_runs import copy_repository

pytestmark = pytest.mark.slow
METRIC = '''

@pair_metric("Dice", "positive")
def mean_dice(_iou: np.ndarray, intersection: np.ndarray, union: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean Dice."""
    return 2 * intersection / (intersection + union), np.ones(len(union))
'''
PRINTED = {
    "columns: [giou, ciou, n_acc]": "columns: [giou, ciou, n_acc, mean_dice]",
    "total: [71.2, 75.6, 91.8]": "total: [71.2, 75.6, 91.8, 80.5]",
    "ROSALIA: [71.2, 75.6, 91.8]": "ROSALIA: [71.2, 75.6, 91.8, 80.5]",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a copy of the repository with the metric ``mean_dice``, and the copy."""
    root = copy_repository(tmp_path_factory.mktemp("metric") / "project")
    with open(root / "scripts/cxr/metrics/masks.py", "a", encoding="utf-8") as file:
        file.write(METRIC)
    path = root / "resources/paper_tables.yaml"
    before, mark, section = path.read_text(encoding="utf-8").partition("\nevaluation:\n")
    for old, new in PRINTED.items():
        assert section.count(old) == 1
        section = section.replace(old, new)
    path.write_text(before + mark + section, encoding="utf-8")
    folder = tmp_path_factory.mktemp("run")
    settings = {
        "phantom": {"subjects": 8, "studies": 8},
        "cohort": {"shards": 1},
        "page": {"gallery": 0},
        "training": {"runs": {"base": {"weights": "lite", "trained": False}}},
        "evaluation": {"predictions": {"everything": {"adapter": "everything"}}},
    }
    write_settings(folder, settings)
    snakemake(folder, "evaluation", root=root)
    snakemake(folder, "page", root=root)
    return folder


def test_a_metric_is_in_the_tables_the_page_and_the_chart(run):
    (total,) = read_table(run / "results/evaluation/everything/scores.tsv").filter(lesion="total").to_dicts()
    pairs = read_table(run / "results/evaluation/everything/pairs.parquet").filter(polarity="positive")
    dice = 2 * pairs["intersection"] / (pairs["intersection"] + pairs["union"])
    assert total["mean_dice"] == round(100 * dice.mean(), 2)
    assert total["mean_dice_low"] <= total["mean_dice"] <= total["mean_dice_high"]
    comparison = read_table(run / "results/evaluation/comparison.tsv").filter(lesion="total")
    dice_by_run = dict(comparison.select("run", "mean_dice").iter_rows())
    assert (dice_by_run["everything"], dice_by_run["ROSALIA"]) == (total["mean_dice"], 80.5)
    with Image.open(run / "results/evaluation/masks.png") as chart:
        assert chart.height == 4 * 3 * 110  # four panels of 3 inches
    page = (run / "results/index.html").read_text(encoding="utf-8")
    assert '<th scope="col" class="n">Dice</th>' in page
    assert "gIoU, cIoU, Dice over positive pairs" in page
    assert f"Dice {total['mean_dice']:.1f}" in page  # in the figures' alternative texts

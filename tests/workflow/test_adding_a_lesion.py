"""Adding a lesion type takes two places: an entry in `resources/lesions.toml`, and a word in the lexicon."""

import csv
import shutil

import pytest

from conftest import ROOT, snakemake, write_settings
from cxr.base.tables import read_lines
from cxr.base.vocabulary import SPLITS

pytestmark = pytest.mark.slow
NODULE = """
[[lesion]]
name = "nodule"
colour = "#332288"
code = ["427359005", "SCT", "Solitary nodule of lung"]
parent = "opacity"
global_share = 0.05
labels = ["Lung Lesion"]
box_class = "Nodule/Mass"
noun = "nodule"
plural = "nodules"
wordings = { medical_expert = "pulmonary nodule", layperson = "round spot", ai_developer = "nodule" }
synonyms = ["nodule", "pulmonary nodule", "round spot"]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A copy of the project with the lesion type nodule, which the lexicon knows as an entity without a lesion type."""
    root = tmp_path_factory.mktemp("project")
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(ROOT / name, root / name)
    for name in ("scripts", "rules", "envs", "report", "resources", "profiles"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    lesions, lexicon = root / "resources/lesions.toml", root / "resources/lexicon/entities.yaml"
    lesions.write_text(lesions.read_text() + NODULE)
    text = lexicon.read_text()
    assert text.count("  - name: nodule\n") == 1
    lexicon.write_text(text.replace("  - name: nodule\n", "  - name: nodule\n    lesion: nodule\n"))
    return root


def test_a_reported_nodule_becomes_masks_and_pairs(root, workflow_run, tmp_path):
    positive = next(
        line
        for split in SPLITS
        for line in read_lines(workflow_run / f"results/dataset/default/{split}.jsonl")
        if line["seg"] and line["target"] == "pneumonia" and len(line["location"]) == 1
    )
    place = positive["location"][0]
    (image,) = (workflow_run / "results/phantom/images").glob(f"{positive['image_id']}.*")
    (tmp_path / "report.txt").write_text(f"FINDINGS: There is a nodule in the {place.removesuffix(' lung')}.\n")
    with open(tmp_path / "manifest.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["subject_id", "study_id", "image_id", "image_path", "report_path", "view", "split"])
        rows.writerow(["p1", "s1", "i1", image, "report.txt", "PA", "train"])
    write_settings(tmp_path, {"cohort": {"source": "manifest", "manifest": "manifest.csv", "shards": 1}})
    snakemake(tmp_path, "all", root=root)
    lines = list(read_lines(tmp_path / "results/dataset/default/train.jsonl"))
    nodules = [line for line in lines if line["target"] == "nodule"]
    assert nodules
    assert {location for line in nodules if line["seg"] for location in line["location"]} == {place}
    denied = [line for line in lines if not line["seg"] and line["target"] in ("nodule", "opacity")]  # a nodule is both
    assert all(line["location"] and place not in line["location"] for line in denied)

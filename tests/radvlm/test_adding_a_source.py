"""A format of RadVLM's sources is added in two places: its entry, and the module of its reader."""

import pytest

from conftest import snakemake, write_settings
from cxr.base.tables import read_table
from whole_runs import copy_repository

ENTRY = """
marks:
  reader: marks.read_marks
  family: mimic
  is_file: true
  terms: "marks of the maker of this test"
"""
READER = '''"""The source marks: a table of present labels."""

import polars as pl

from cxr.radvlm.sources.facts import IMAGES, ReadOptions, SourceRecords, image_label_facts


def read_marks(options: ReadOptions) -> SourceRecords:
    """Read the images with their labels."""
    records = SourceRecords()
    for row in pl.read_csv(options.folder).iter_rows(named=True):
        image = {name: row["image"] for name in ("image_id", "study_id", "subject_id")}
        place = {"view": "PA", "sex": None, "rows": 10, "columns": 10, "path": "none.png", "frames": options.name}
        records.images.append(image | {"split": "train"} | place)
        records.facts += image_label_facts(row["image"], {row["label"]: "present"}, options.uncertain)
    records.num_rows[IMAGES] = len(records.images)
    return records
'''


@pytest.mark.slow
def test_a_format_is_an_entry_and_a_module(tmp_path):
    clone = copy_repository(tmp_path / "clone")
    entries = clone / "resources/radvlm/formats.yaml"
    entries.write_text(entries.read_text(encoding="utf-8") + ENTRY, encoding="utf-8")
    (clone / "scripts/cxr/radvlm/sources/marks.py").write_text(READER, encoding="utf-8")
    table = tmp_path / "marks.csv"
    table.write_text("image,label\na,Edema\nb,Pneumonia\n")
    sources = {"use": ["own", "theirs"], "list": {"theirs": {"format": "marks", "path": str(table)}}}
    run = write_settings(tmp_path / "run", {"radvlm": {"sources": sources}})
    folder = run / "results/radvlm/sources/theirs"
    snakemake(run, "results/radvlm/sources/theirs/facts.parquet", root=clone)
    facts = read_table(folder / "facts.parquet")
    assert facts.select("image_id", "name", "value").rows() == [
        ("a", "Edema", "present"),
        ("b", "Pneumonia", "present"),
    ]
    plan = snakemake(run, "-n", "results/radvlm/sources/split_conflicts.parquet", root=clone)
    assert "radvlm_sources_splits" in plan.stdout + plan.stderr

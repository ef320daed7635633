"""What wrong settings of RadVLM's sources get: one sentence, before any job, that names the key and the remedy."""

import pytest

from conftest import snakemake, write_settings
from cxr.workflow.settings import SettingsError, read
from radvlm_trees import vindr_tree


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ({"use": ["own", "mimc"]}, r"`use` has 'mimc', but the sources are own: declare 'mimc' in `list`"),
        ({"use": ["own", "own"]}, r"use names 'own' twice"),
        ({"list": {"Own!": {"format": "mimic", "path": "x"}}}, r"list has the name 'Own!'"),
        ({"list": {"own": {"format": "mimic", "path": "x"}}}, r"list has the name 'own'"),
        ({"list": {"a": {"format": "mimic"}}}, r"list.a.path is empty: give the folder"),
        ({"list": {"a": {"format": "ms_cxr", "path": "x"}}}, r"list.a.pictures is ''.*declare one in list"),
        (
            {"list": {"a": {"format": "imagenome", "path": "x", "pictures": "y"}, "b": {"path": "x"}}},
            r"list.a.pictures is 'y'.*give b",
        ),
        ({"list": {"a": {"format": "dicom", "path": "x"}}}, r"radvlm.sources.list.a.format is 'dicom'"),
        ({"uncertain": "maybe"}, r"radvlm.sources.uncertain is 'maybe'"),
        ({"split": "half"}, r"radvlm.sources.split is 'half'"),
        ({"labells": "rules"}, r"labells"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence(sources, sentence):
    with pytest.raises(SettingsError, match=sentence) as told:
        read({"radvlm": {"sources": sources}})
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"format": "chexpert", "path": "nowhere"}, ".x.path: there is no folder 'nowhere'"),
        ({"format": "nih", "path": "nowhere.csv"}, ".x.path: there is no file 'nowhere.csv'"),
        ({"format": "vindr", "path": ".", "pictures": "gone"}, ".x.pictures: there is no folder 'gone'"),
        ({"format": "vindr", "path": ".", "subject": "("}, ".x.subject is '(', which is no regular expression"),
        ({"format": "vindr", "path": ".", "subject": "a"}, ".x.subject is 'a', a regex without a group"),
    ],
)  # fmt: skip
def test_a_source_whose_files_are_not_there_stops_before_any_job(tmp_path, source, sentence):
    run = write_settings(tmp_path, {"radvlm": {"sources": {"list": {"x": source}}}})
    done = snakemake(run, "-n", "radvlm_sources", check=False)
    assert done.returncode
    assert f"radvlm.sources.list{sentence}" in done.stderr + done.stdout


@pytest.mark.slow
def test_external_sources_are_read_and_their_pictures_become_frames(tmp_path):
    tree = vindr_tree(tmp_path / "tree")
    sources = {"list": {"people": {"format": "vindr", "path": str(tree)}}}
    run = write_settings(tmp_path / "run", {"radvlm": {"sources": sources}, "cohort": {"shards": 2}})
    folder = "results/radvlm/sources/people"
    snakemake(run, f"{folder}/facts.parquet", f"{folder}/frames/00.h5", f"{folder}/frames/01.h5")
    assert (run / folder / "counts.tsv").read_text().startswith("what\tnumber\n")
    again = snakemake(run, "-n", f"{folder}/frames/00.h5")
    assert "Nothing to be done" in again.stdout + again.stderr

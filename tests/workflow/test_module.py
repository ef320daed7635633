"""Another workflow uses this one as a module, as Snakemake's workflow catalog deploys it."""

import subprocess
import sys

import pytest

from conftest import ROOT

SNAKEFILE = f"""
configfile: "config.yaml"

module cxr:
    snakefile: "{ROOT}/Snakefile"
    config: config

use rule * from cxr

rule count:
    input: "results/phantom/manifest.csv"
    output: "counted.txt"
    shell: "wc -l < {{input}} > {{output}}"
"""


def run(folder, *arguments: str, settings: str) -> subprocess.CompletedProcess:
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "config.yaml").write_text(settings)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_rule_of_another_workflow_takes_a_file_of_this_one(tmp_path):
    done = run(tmp_path, "count", settings="phantom: {subjects: 6, studies: 6}")
    assert done.returncode == 0, done.stderr
    assert int((tmp_path / "counted.txt").read_text()) > 6  # a head and the images of six studies


def test_a_wrong_setting_stops_it_in_one_sentence(tmp_path):
    done = run(tmp_path, "count", settings="phantom: {studys: 6}")
    assert done.returncode == 1
    assert "cxr-ils: phantom" in done.stderr + done.stdout
    assert "studies" in done.stderr + done.stdout
    assert not (tmp_path / "results").exists()

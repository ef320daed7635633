"""The profile `local`: what its comments promise, seen at three jobs that want the machine's GPU."""

import subprocess
import sys
from base64 import b64encode

from conftest import ROOT

SNAKEFILE = """
GPU = "mkdir gpu && sleep 0.5 && rmdir gpu && "  # fails where another job has it
rule all:
    input: "fails.txt", "works.txt", "half.txt"
rule fails:
    output: "fails.txt"
    log: "fails.log"
    priority: 1
    resources: gpu=1
    shell: GPU + "echo broken $((6 * 7)) times > {log} && false"
ruleorder: fails > works
rule works:
    output: "{name}.txt"
    resources: gpu=1
    shell: GPU + "echo done > {output}"
"""


def test_the_profile_local_keeps_its_promises(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "half.txt").write_text("do")
    marks = tmp_path / ".snakemake/incomplete"  # where Snakemake keeps what a crash left half-done
    marks.mkdir(parents=True)
    (marks / b64encode(b"half.txt").decode()).touch()
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--directory", str(tmp_path)]
    command += ["--snakefile", str(tmp_path / "Snakefile")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "broken 42 times" in done.stderr  # the log of what failed, and it had the GPU for itself
    made = {path.name: path.read_text() for path in tmp_path.glob("*.txt")}
    assert made == {"works.txt": "done\n", "half.txt": "done\n"}, done.stderr
    assert "mkdir:" not in done.stderr  # one job at a time, though there are cores for more

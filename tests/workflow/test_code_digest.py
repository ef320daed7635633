"""Code digests cover meaning: a reworded comment changes none, a changed number changes those of its users."""

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, SLICE, write_settings
from cxr.workflow import code_digest
from cxr.workflow.code_digest import DigestCache, combine_digests
from planner import Planner
from whole_runs import copy_repository

CODE = '''"""A module."""

import os

LIMIT = 30.0
"""A limit."""
COLUMNS = {"area": Column(float, "An area.", "pixels"), "side": Column(float, told("A side."))}


class Part:
    """A part."""

    size: int = 3  # a comment
    share: float = key(0.5, "A share.", ge=0)

    def area(self, side: float, *, twice: bool = False) -> float:
        """Return an area."""
        text = f"{side!r:>4} {{}}"
        return self.size * side**2 if twice else len(text) - LIMIT
'''
SAME = [
    ('"""A module."""', '"""Another description,\n\nof two paragraphs."""'),
    ('"""A limit."""\n', ""),
    ("# a comment", "# another # comment"),
    ("\n\n\nclass", "\n# new\nclass"),
    ('"""Return an area."""', "'''Return an area, in pixels.'''"),
    ("30.0", "30.00"),
    ("side**2", "(side ** 2)"),
    ('key(0.5, "A share.", ge=0)', 'key(0.6, "The share.", ge=0, le=1)'),
    ('"An area.", "pixels"', '"How much it covers.", unit="square metres"'),
]
OTHER = [
    ("30.0", "31.0"),
    ("30.0", "30"),
    ("size: int = 3", "size: int = 4"),
    ("size: int", "size: float"),
    ("share: float", "share: int"),
    ("key(0.5", "other(0.5"),
    ("twice: bool = False", "twice: bool = True"),
    ("side!r:>4", "side!r:>5"),
    ("import os", "import re"),
    ("LIMIT", "BOUND"),
    ("Column(float, \"An", "Column(int, \"An"),
    ("\"area\": Column", "\"size\": Column"),
    ("Column(float, told", "Row(float, told"),
    ("Return an area", "Return an area\"\"\"; return 0; \"\"\""),
]  # fmt: skip


def digest_of(folder: Path, text: str, name: str = "module.py") -> bytes:
    path = folder / name
    path.write_text(text)
    return code_digest.meaning_digest(path)


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_said_about_code_is_not_its_meaning(tmp_path, old, new):
    assert old in CODE
    assert digest_of(tmp_path, CODE) == digest_of(tmp_path, CODE.replace(old, new))


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_code_does_is_its_meaning(tmp_path, old, new):
    assert old in CODE
    assert digest_of(tmp_path, CODE) != digest_of(tmp_path, CODE.replace(old, new))


@given(st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.booleans(), st.none()), max_size=5))
def test_two_values_have_one_digest_only_if_they_are_one(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("values")
    one = digest_of(folder, f"x = {values!r}\n")
    assert one == digest_of(folder, f"# {values!r}\nx = ({values!r})\n".replace("\n\n", "\n"))
    assert one != digest_of(folder, f"x = {[*values, 'more']!r}\n")


@pytest.mark.slow
def test_every_module_tells_two_of_its_statements_apart():
    """Our serialisation loses nothing: the dump of Python's own tells the same modules apart."""
    ours, theirs = set(), set()
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr | ast.FunctionDef | ast.ClassDef):
                ours.add("\n".join(code_digest._tokens(node)))
                for call in ast.walk(node):  # a column's sentence and unit, and a setting's arguments, only document
                    if isinstance(call, ast.AnnAssign) and call.value and ast.unparse(call.value).startswith("key("):
                        call.value = None
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Column":
                        call.args, call.keywords = call.args[:1], []
                theirs.add(ast.dump(node))
    assert len(ours) == len(theirs) > 1000


def test_of_yaml_the_data_count(tmp_path):
    text = "# why\na: 1.50\nb: [x, y]\n"
    assert digest_of(tmp_path, text, "a.yaml") == digest_of(tmp_path, "a: 1.5  # other\nb:\n- x\n- y\n", "a.yaml")
    assert digest_of(tmp_path, text, "a.yaml") != digest_of(tmp_path, text.replace("1.50", "1.51"), "a.yaml")
    assert digest_of(tmp_path, text, "a.yaml") != digest_of(tmp_path, "b: [x, y]\na: 1.50\n", "a.yaml")


def test_of_declared_columns_names_types_and_order_count(tmp_path):
    folder = tmp_path / "columns"
    folder.mkdir()
    text = '[areas]\nstudy = ["text", "Study."]\narea = ["int64", "Its area.", "pixels"]\n'
    one, reworded = digest_of(folder, text, "a.toml"), text.replace("Its area", "How large").replace("pixels", "mm2")
    assert one == digest_of(folder, f"# new\n{reworded}", "a.toml")
    for old, new in (("int64", "float64"), ("area =", "size ="), ("[areas]", "[sizes]")):
        assert one != digest_of(folder, text.replace(old, new), "a.toml")
    head, *rows = text.splitlines()
    assert one != digest_of(folder, "\n".join([head, *reversed(rows)]), "a.toml")


def test_of_what_cannot_be_parsed_the_bytes_count(tmp_path):
    assert digest_of(tmp_path, "def (:\n") != digest_of(tmp_path, "def (:\n# more\n")
    assert digest_of(tmp_path, "a: [\n", "a.yaml") != digest_of(tmp_path, "a: [\n# more\n", "a.yaml")
    assert digest_of(tmp_path, "a\tb\n", "a.tsv") != digest_of(tmp_path, "a\tb\n\n", "a.tsv")


def test_digests_are_kept_by_size_and_time(tmp_path, monkeypatch):
    source, kept = tmp_path / "module.py", tmp_path / "kept.json"
    source.write_text(CODE)
    os.utime(source, (time.time() - 60,) * 2)
    parsed = []
    monkeypatch.setattr(code_digest, "meaning_digest", lambda path: parsed.append(path) or b"1" * 32)
    for _ in range(3):
        known = DigestCache(kept)
        assert known.digest(source) == b"1" * 32
        known.keep()
    assert len(parsed) == 1
    source.write_text(CODE + "\n")  # younger than the clock's tick: parsed, and not kept
    DigestCache(kept).digest(source)
    assert len(parsed) == 2
    kept.write_text("{")
    DigestCache(kept).digest(source)
    assert len(parsed) == 3


@pytest.mark.parametrize(
    "held", ["[]", '{"version": 0, "files": {}}', '{"version": 1}', "", "\0", '{"version": 1, "files": []}']
)
def test_a_damaged_record_is_made_anew(tmp_path, held):
    source, kept = tmp_path / "module.py", tmp_path / "kept.json"
    source.write_text(CODE)
    kept.write_text(held)
    assert DigestCache(kept).digest(source) == code_digest.meaning_digest(source)


def test_without_a_place_to_keep_them_digests_are_made(tmp_path):
    source = tmp_path / "module.py"
    source.write_text(CODE)
    os.utime(source, (time.time() - 60,) * 2)
    known = DigestCache(tmp_path / "no/folder/kept.json")
    assert known.digest(source) == code_digest.meaning_digest(source)
    known.keep()
    assert not (tmp_path / "no").exists()


def test_names_and_digests_are_told_apart():
    assert combine_digests([("a", b"1"), ("b", b"2")]) == combine_digests([("b", b"2"), ("a", b"1")])
    assert combine_digests([("a", b"1"), ("b", b"2")]) != combine_digests([("a", b"2"), ("b", b"1")])
    assert re.fullmatch(r"[0-9a-f]{16}", combine_digests([]))


REWORDED = (
    "base/jobs.py", "base/hdf5.py", "base/vocabulary.py", "ils/masks/algorithm.py", "ils/masks/segmenter.py",
    "dicom/decode.py", "imaging/organs/lite.py", "language/reports/rules/mentions.py", "ils/dataset/pairs.py",
    "imaging/cohort/make_cohort.py",
)  # fmt: skip


def _reword(path: Path) -> None:
    """Reword every docstring and comment of a module."""
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    remarks = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and code_digest._is_docstring(node)]
    assert remarks
    for node in remarks:
        lines[node.lineno - 1] = lines[node.lineno - 1].replace('"""', '"""Reworded: ', 1)
    path.write_text("# Reworded.\n" + "\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_rewording_ten_modules_runs_nothing_and_a_number_runs_its_users(workflow_run, tmp_path):
    clone = copy_repository(tmp_path / "clone")
    settings = write_settings(tmp_path, SLICE) / "mine.yaml"
    with Planner(clone) as planner:
        assert planner.jobs(workflow_run, settings) == []
        for name in REWORDED:
            _reword(clone / "scripts/cxr" / name)
        lexicon = clone / "resources/lexicon/scope.yaml"
        lexicon.write_text("# Reworded.\n" + lexicon.read_text())
        assert planner.jobs(workflow_run, settings) == []
        source = clone / "scripts/cxr/ils/masks/algorithm.py"
        source.write_text(source.read_text() + "\nNEW = 31.0\n")
        rules = {job.rule for job in planner.jobs(workflow_run, settings)}
    assert {"masks_shard", "masks_sweep", "dataset_pairs"} <= rules
    before = ("frames", "organs", "anomaly", "anatomy", "boxes", "reports")
    assert not rules & {f"{stage}_shard" for stage in before}


def test_digests_are_those_of_any_process(tmp_path):
    """Neither the hash seed nor what was kept before decides a digest."""
    code = (
        "from cxr.workflow.code_digest import code_digest, save_digests, load_digests; from pathlib import Path; "
        f"load_digests(Path({str(tmp_path / 'kept.json')!r})); "
        "print(code_digest('job.py', 'cxr.ils.masks.make_masks')); save_digests()"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "scripts"), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(told) == 1
    held = json.loads((tmp_path / "kept.json").read_text())["files"]
    assert any(name.endswith("masks/algorithm.py") for name in held)

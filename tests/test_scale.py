"""At the size of MIMIC-CXR: the simulated cohort, how many jobs there are, what the workflow's start may cost."""

import ast

import pytest

from conftest import ROOT
from ils.core.provenance import imported_names

SOURCES = sorted((ROOT / "scripts").rglob("*.py"))


def names_by_the_whole_tree(source: str) -> set[str]:
    """The oracle: every import statement that Python's own parser finds."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_imports_are_found_without_parsing_all_of_a_module():
    assert len(SOURCES) > 100
    for path in SOURCES:
        assert imported_names(path) == names_by_the_whole_tree(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(
    "source",
    [
        "import a, b.c as d  # and (more\nfrom e.f import g as h, i",
        "from a import (  # not ) the end\n    b,\n    c as d,\n)\nimport e",
        "from a import(b, c)\nfrom  d\timport  e",
        "def f():\n    import a\n    if f:\n      from b import c\n",
        "try: import a\nexcept ImportError: from b import c\n",
        "x = 1; import a; from b import c",
        "from a \\\n    import b\nimport c, \\\n    d\nfrom \\\n  e import f",
        "from . import a\nfrom .b import c\nfrom d import *",
        "importer = 1\nimported(x)\nfrom_x = 2\nyields = lambda: 0\n",
        "import a\r\nfrom b import (\r\n    c,\r\n)\r\n",
        "class A:\n    from a import b\n\n    async def f(self):\n        from c import (d,\n e)\n",
    ],
)
def test_imports_of_any_form_are_found(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_bytes(source.encode())
    assert imported_names(path) == names_by_the_whole_tree(source)


def test_a_text_that_reads_like_an_import_hides_none(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""\nimport a lot of it\nfrom b import c\n"""\nimport d\n')
    assert imported_names(path) >= {"d"}

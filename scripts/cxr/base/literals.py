"""Reading a module's top-level assignments without importing it, because its libraries may be missing."""

import ast
from pathlib import Path


def read_assignments(source: Path) -> dict[str, ast.expr]:
    """Return {name: value, as :func:`ast.literal_eval` takes it} of the assignments at the top of a module."""
    lines = (node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign))
    return {line.targets[0].id: line.value for line in lines if isinstance(line.targets[0], ast.Name)}

"""Print how easy the code is to take over: names, size, settings and documentation, each beside its target.

python scripts/tools/clarity.py [--names]

With ``--names`` only names are checked. The exit status is 1 if a package has more functions with empty names than its
budget allows. An empty name does not say what its value is, such as ``given``.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scripts/cxr"
WORDS = """
told held found given one own known made kept said asked seen wanted named shown gone drawn here what whole chosen
others rest other left counted answered beside moved of
"""
EMPTY_NAMES = frozenset(WORDS.split())
"""Names that do not say what their value is. They are fine as a part of a longer name."""
BUDGET = {"base": 1, "radvlm": 7}
"""{package: maximum number of functions with an empty name}. It is 0 for other packages, and no number may rise."""
GENERATED = ("config.yaml", "docs/reference/settings.md", "docs/reference/reasons.md", "docs/reference/stages.md")


def bound_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that a function binds: its own, its arguments and its variables."""
    nodes = list(ast.walk(function))
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return variables | {node.arg for node in nodes if isinstance(node, ast.arg)} | {function.name}


def empty_names(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield (file, line, empty names) of each function that binds one, and of modules and classes with such a name."""
    for path in sorted(folder.rglob("*.py")):
        if path.stem in EMPTY_NAMES:
            yield path, 1, path.stem
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (names := bound_names(node) & EMPTY_NAMES):
                yield path, node.lineno, ", ".join(sorted(names))
            elif isinstance(node, ast.ClassDef) and node.name.lower() in EMPTY_NAMES:
                yield path, node.lineno, node.name


def over_budget() -> list[str]:
    """Return a line of text for each function with an empty name in a package that exceeds its budget."""
    faults = [(path.relative_to(PACKAGE).parts[0], path, line, names) for path, line, names in empty_names(PACKAGE)]
    counts = Counter(package for package, *_ in faults)
    return [
        f"{path.relative_to(ROOT)}:{line}: {names} ({counts[package]} in {package}, at most {BUDGET.get(package, 0)})"
        for package, path, line, names in faults
        if counts[package] > BUDGET.get(package, 0)
    ]


def figures() -> list[tuple[str, float, float]]:
    """Return (name, value, target) of each figure of the code."""
    modules = list(PACKAGE.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in modules}
    nodes = (node for text in texts.values() for node in ast.walk(ast.parse(text)))
    num_functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    reference = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))
    generated = sum((ROOT / name).stat().st_size for name in GENERATED if (ROOT / name).is_file())
    return [
        ("functions with a name that says nothing, %", 100 * sum(1 for _ in empty_names(PACKAGE)) / num_functions, 2),
        ("scripts/cxr, lines", sum(lines.values()), 72_000),
        ("scripts/cxr, files", len(modules), 700),
        ("workflow, lines", sum(n for path, n in lines.items() if path.is_relative_to(PACKAGE / "workflow")), 6_000),
        ("settings", sum(line.startswith("| `") for line in reference.splitlines()), 500),
        ("config.yaml, lines", len((ROOT / "config.yaml").read_text(encoding="utf-8").splitlines()), 400),
        ("docs, words", words, 55_000),
        ("generated text, kB", generated / 1000, 100),
    ]


def main() -> int:
    """Print all figures and the functions over budget, or only these with ``--names``. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="check only the names")
    faults = over_budget()
    if parser.parse_args().names:
        print("\n".join(faults) or "names: within their budgets")
        return bool(faults)
    for what, figure, target in figures():
        print(f"{what:45} {figure:10,.1f}   target {target:8,}   {'met' if figure <= target else 'MISSED'}")
    print("\n".join(faults) or "names: within their budgets")
    return 0


if __name__ == "__main__":
    sys.exit(main())

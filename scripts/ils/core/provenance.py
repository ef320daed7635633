"""What made a file: digests of the code and of the settings behind it.

Snakemake tracks a script file by its modification time and the modules it imports not at all. ``code_digest`` covers
the script, every local module it imports (transitively) and the resource files it names, by content and relative
path, so that an edit re-runs exactly the stages that use it, and a touch, clone or copy re-runs nothing.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
RESOURCES = SCRIPTS.parent / "resources"


def _module_file(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imported_names(path: Path) -> set[str]:
    """Return the absolute module names a Python file imports anywhere, ``from a import b`` giving ``a`` and ``a.b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def local_sources(script: Path, root: Path = SCRIPTS) -> list[Path]:
    """Return ``script`` and every module under ``root`` that it imports, directly or not, sorted."""
    seen: set[Path] = set()
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imported_names(path):
            parts = name.split(".")
            prefixes = (".".join(parts[: n + 1]) for n in range(len(parts)))
            waiting += [file for prefix in prefixes if (file := _module_file(prefix, root))]
    return sorted(seen)


def file_digest(paths: list[Path], root: Path) -> str:
    """Return one digest over the files' names (relative to ``root``) and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


@cache
def code_digest(script: str, *resources: str) -> str:
    """Digest a script of ``scripts/``, the modules it imports and the named files or folders of ``resources/``."""
    files = local_sources(SCRIPTS / script)
    for name in resources:
        path = RESOURCES / name
        files += [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return file_digest(files, SCRIPTS.parent)


def settings_digest(settings: dict) -> str:
    """Digest the settings a job was given (plain builtins)."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

"""Digest the code that a rule runs.

Snakemake tracks a script by its modification time and does not track its imports. ``code_digest`` covers the script,
every local module that it imports directly or indirectly, and the resource files that these modules declare. It
depends on the relative path and the meaning of each file. So an edit reruns exactly the stages that use the code. A
new modification time, a copy of the repository or a reworded comment reruns nothing.

The meaning of a Python file is its code without docstrings, comments and layout. The meaning of a YAML file is its
data, and of a file in resources/columns the names and types of the columns. Of any other file, all bytes count. This
module itself turns Python code into text, because the output of ``ast.dump`` differs between versions of Python.
"""

import ast
import hashlib
import importlib.util
import json
import os
import re
import time
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import yaml

from cxr.base.engines import installed_engines, read_assignments
from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES, SCRIPTS
from cxr.base.resources import SAFE_LOADER

VERSION = 1
"""Version of the method in this module. A new version changes every digest."""
SETTLED_NS = 2_000_000_000
"""Minimum age in ns of a file whose digest is stored. A younger file might still change without a new file time."""
_IMPORT = re.compile(r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?import\b[ \t]*(?:\([^)]*\)|[^\n]*))", re.MULTILINE)
_NOT_CUT = re.compile(r"[:;][ \t]*(?:from|import)\b|\b(?:from|import)\b[^\n]*\\\n")
"""Pattern of an import that shares its line with other code or continues after a backslash, so _IMPORT misses it."""


def meaning_digest(path: Path) -> bytes:
    """Return the SHA-256 digest of a file's code or data without comments, or of its bytes if it cannot be parsed."""
    content = path.read_bytes()
    try:
        if path.suffix == ".py":
            content = "\n".join(_tokens(ast.parse(content))).encode("utf-8", "surrogatepass")
        elif path.suffix in (".yaml", ".yml"):
            content = json.dumps(yaml.load(content, SAFE_LOADER), default=str).encode()
        elif path.parent.name == "columns":
            tables = tomllib.loads(content.decode())
            types = {table: [(name, row[0]) for name, row in rows.items()] for table, rows in tables.items()}
            content = json.dumps(types).encode()
    except (SyntaxError, ValueError, yaml.YAMLError):
        pass
    return hashlib.sha256(content).digest()


def _tokens(node: ast.AST) -> Iterator[str]:
    yield type(node).__name__
    for name in node._fields:
        value = _counted_field(node, name)
        if value is None or value == []:
            continue
        yield name
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, ast.AST):
                yield repr(part)
            elif not _is_docstring(part):
                yield from _tokens(part)
        yield ")"


def _counted_field(node: ast.AST, name: str) -> object:
    """Return the part of a syntax node's field ``name`` that counts for the digest.

    Of ``Column(type, sentence, unit)`` only the type counts, because sentence and unit are documentation. Of a
    setting ``name: type = key(default, sentence)`` only name and type count, because jobs receive the value.
    """
    value = getattr(node, name, None)
    if isinstance(node, ast.AnnAssign) and name == "value" and isinstance(value, ast.Call):
        return None if isinstance(value.func, ast.Name) and value.func.id == "key" else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Column":
        return {"args": value[:1], "keywords": []}.get(name, value) if isinstance(value, list) else value
    return value


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class DigestCache:
    """File digests with the size and time of each file, stored on disk, so that jobs need not parse every module."""

    def __init__(self, file: Path | None = None):
        self._file = file
        self._held: dict[str, list] = {}
        self._used: dict[str, list] = {}
        try:
            cache_content = json.loads(file.read_text(encoding="utf-8")) if file else {}
            if cache_content.get("version") == VERSION:
                self._held = dict(cache_content["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # a damaged file is written anew

    def digest(self, path: Path) -> bytes:
        """Return the :func:`meaning_digest` of a file, from the cache if the file has not changed."""
        state = os.stat(path)
        key, stamp = os.path.abspath(path), [state.st_size, state.st_mtime_ns]
        entry = self._held.get(key)
        if not (isinstance(entry, list) and entry[:2] == stamp):
            entry = [*stamp, meaning_digest(path).hex()]
        if time.time_ns() - state.st_mtime_ns > SETTLED_NS:
            self._used[key] = entry
        return bytes.fromhex(entry[2])

    def keep(self) -> None:
        """Write the digests to disk if there are new ones and the folder is writable."""
        if self._file is None or self._used.items() <= self._held.items():
            return
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
        try:
            new.write_text(json.dumps({"version": VERSION, "files": self._used}), encoding="utf-8")
            os.replace(new, self._file)
        except OSError:
            new.unlink(missing_ok=True)


def combine_digests(digests: Iterable[tuple[str, bytes]]) -> str:
    """Combine digests, given as (name, digest), into one digest of 16 hexadecimal digits."""
    hasher = hashlib.sha256()
    for name, digest in sorted(digests):
        hasher.update(name.encode() + b"\0" + digest)
    return hasher.hexdigest()[:16]


_known = DigestCache()


# Most modules belong to the digests of many rules. Every file is read only once per process, because reading it for
# each rule would take most of the time to load the Snakefile.
@cache
def module_file(name: str, root: Path) -> Path | None:
    """Return the path of a module's file below ``root``, or None if there is no such file."""
    base = root.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imported_names(path: Path) -> frozenset[str]:
    """Return the absolute names of all modules that a file imports; ``from a import b`` gives ``a`` and ``a.b``."""
    return _names_in(path.read_text(encoding="utf-8"))


@cache
def _names_in(source: str) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(_imports_in(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def _imports_in(source: str) -> ast.Module:
    """Return the parsed import statements of a source, or the whole source if they cannot be cut out.

    Every job of a cluster calls this function at its start, and parsing whole modules would double the time. A line of
    a string that looks like an import is taken for one, so a digest may cover a module too many but never one too few.
    """
    try:
        if not _NOT_CUT.search(source):
            return ast.parse("\n".join(_IMPORT.findall(source)))
    except SyntaxError:
        pass
    return ast.parse(source)


def local_sources(script: Path, root: Path = SCRIPTS) -> list[Path]:
    """Return ``script`` and the files of all modules under ``root`` that it imports directly or indirectly, sorted."""
    sources, waiting = {script}, [script]
    while waiting:
        new_sources = _local_imports(waiting.pop(), root) - sources
        sources |= new_sources
        waiting += new_sources
    return sorted(sources)


@cache
def _local_imports(path: Path, root: Path) -> frozenset[Path]:
    """Return the files of the modules under ``root`` that a file imports directly, and of their packages."""
    top_names, files = {entry.stem for entry in root.iterdir()}, set()
    for name in imported_names(path):
        parts = name.split(".")
        if parts[0] in top_names:
            files |= {module_file(".".join(parts[: n + 1]), root) for n in range(len(parts))}
    return frozenset(files - {None})


@cache
def _meaning(path: Path) -> bytes:
    return _known.digest(path)


def load_digests(file: Path) -> None:
    """Load digests of unchanged files from ``file``, if it exists. Call this function before any digest is made."""
    global _known
    _known = DigestCache(file)


def save_digests() -> None:
    """Write the digests to the file that was given to :func:`load_digests`."""
    _known.keep()


def resource_files(source: Path) -> list[Path]:
    """Return the files in ``resources/`` that a module declares: ``RESOURCE_FILES = ("organs/lite.onnx", "lexicon")``.
    A declared folder stands for all files in it."""
    paths = [RESOURCES / name for name in _declared(source)]
    return [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


@cache
def _declared(source: Path) -> tuple[str, ...]:
    if "RESOURCE_FILES" not in source.read_text(encoding="utf-8"):  # parsing every module would take too long
        return ()
    declaration = read_assignments(source).get("RESOURCE_FILES")
    return () if declaration is None else tuple(ast.literal_eval(declaration))


@cache
def code_digest(script: str, *modules: str) -> str:
    """Return a digest of a script in ``scripts/``, of the modules that it imports, and of their resource files.

    ``modules``: names of modules that are imported only at run time, such as the engine "cxr.imaging.organs.lite". If
    an engine belongs to an installed package, all files of this package count.
    """
    installed = {name: module for name in modules if (module := installed_module(name))}
    files = digested_files(script, *(name for name in modules if name not in installed))
    labels = {file.relative_to(SCRIPTS.parent).as_posix(): file for file in files}
    for module in installed.values():
        labels |= installed_files(module)
    return combine_digests((label, _meaning(file)) for label, file in labels.items())


def digested_files(script: str, *modules: str) -> set[Path]:
    """Return the files in scripts/ and resources/ that :func:`code_digest` covers for these arguments."""
    sources = set(local_sources(SCRIPTS / script))
    for name in modules:
        file = module_file(name, SCRIPTS)
        if file is None:
            raise FileNotFoundError(f"a rule names {name}, which is not a module under scripts/")
        sources.update(local_sources(file))
    return sources.union(*(resource_files(source) for source in sources))


def installed_module(name: str) -> str:
    """Return the module that an installed package offers as "cxr.imaging.organs.mine", "" for an engine in scripts/."""
    package, _, engine = name.rpartition(".")
    is_built_in = module_file(name, SCRIPTS) is not None
    return "" if is_built_in else installed_engines(package.rpartition(".")[2]).get(engine, "")


def packages_folder(module: str) -> Path:
    """Return the folder that contains an installed module's package, without an import, as libraries may be missing."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise UserError(f"the entry point of an engine names the module {module}, which is not installed: install it")
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


def installed_files(module: str) -> dict[str, Path]:
    """Return {path relative to the packages' folder: file} for all files of the package of an installed module."""
    folder, top = packages_folder(module), module.partition(".")[0]
    files = [*(folder / top).rglob("*"), folder / f"{top}.py"]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file() and path.suffix != ".pyc"}

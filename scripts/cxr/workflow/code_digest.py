"""Digest the code behind a rule.

Snakemake tracks a script by its modification time and does not track its imports. ``code_digest`` covers the script,
every local module that it imports (transitively) and the resource files that these declare, by meaning and relative
path. So an edit re-runs exactly the stages that use it, and a touch, clone, copy or reworded comment re-runs nothing.

The meaning of a file is its code without docstrings, comments and layout, the data of YAML, the names and types of
declared columns, or the bytes of others. The serialisation is our own, because Python's differs between versions.
Fields without a value are left out, so that new fields of a new version change no digest.
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
"""Version of the rules below; a new version changes every digest."""
SETTLED_NS = 2_000_000_000
"""Age above which size and time prove a file unchanged; clocks of file systems are coarse."""
_IMPORT = re.compile(r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?import\b[ \t]*(?:\([^)]*\)|[^\n]*))", re.MULTILINE)
_NOT_CUT = re.compile(r"[:;][ \t]*(?:from|import)\b|\b(?:from|import)\b[^\n]*\\\n")
"""An import that shares its line with other code, or continues after a backslash."""


def meaning_digest(path: Path) -> bytes:
    """Return the digest of a file's meaning, or of its bytes if it cannot be parsed."""
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
    """Return a field of a node that counts.

    Of ``Column(type, sentence, unit)`` only the type counts, because the rest only documents. A setting's
    ``name: type = key(default, sentence)`` counts by its name and type, because jobs receive the values.
    """
    value = getattr(node, name, None)
    if isinstance(node, ast.AnnAssign) and name == "value" and isinstance(value, ast.Call):
        return None if isinstance(value.func, ast.Name) and value.func.id == "key" else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Column":
        return {"args": value[:1], "keywords": []}.get(name, value) if isinstance(value, list) else value
    return value


def _is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is a bare string: a docstring of a name, module, class or function."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class DigestCache:
    """Digests by path, size and time, kept in a file, so that a cluster's jobs need not parse every module."""

    def __init__(self, file: Path | None = None):
        self._file = file
        self._held: dict[str, list] = {}
        self._used: dict[str, list] = {}
        try:
            cache_content = json.loads(file.read_text(encoding="utf-8")) if file else {}
            if cache_content.get("version") == VERSION:
                self._held = dict(cache_content["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # it is rewritten

    def digest(self, path: Path) -> bytes:
        """Return the digest of a file's meaning."""
        state = os.stat(path)
        key, stamp = os.path.abspath(path), [state.st_size, state.st_mtime_ns]
        entry = self._held.get(key)
        if not (isinstance(entry, list) and entry[:2] == stamp):
            entry = [*stamp, meaning_digest(path).hex()]
        if time.time_ns() - state.st_mtime_ns > SETTLED_NS:
            self._used[key] = entry
        return bytes.fromhex(entry[2])

    def keep(self) -> None:
        """Write the digests if there are new ones and the file's folder is writable."""
        if self._file is None or self._used.items() <= self._held.items():
            return
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
        try:
            new.write_text(json.dumps({"version": VERSION, "files": self._used}), encoding="utf-8")
            os.replace(new, self._file)
        except OSError:
            new.unlink(missing_ok=True)


def combine_digests(digests: Iterable[tuple[str, bytes]]) -> str:
    """Return one digest of named digests, 16 hexadecimal digits."""
    hasher = hashlib.sha256()
    for name, digest in sorted(digests):
        hasher.update(name.encode() + b"\0" + digest)
    return hasher.hexdigest()[:16]


_known = DigestCache()


# The rules' digests share most modules. Reading and parsing them for each rule took most of the workflow's parse time,
# so every file is read once per process.
@cache
def module_file(name: str, root: Path) -> Path | None:
    """Return the file of a module below ``root``, None if there is none."""
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

    Every job of a cluster does this at its start, and parsing whole modules took half of that time. A line of a string
    that looks like an import counts as one: a digest may cover a module too many, never one too few.
    """
    try:
        if not _NOT_CUT.search(source):
            return ast.parse("\n".join(_IMPORT.findall(source)))
    except SyntaxError:
        pass
    return ast.parse(source)


def local_sources(script: Path, root: Path = SCRIPTS) -> list[Path]:
    """Return ``script`` and every module under ``root`` that it imports, directly or not, sorted."""
    sources, waiting = {script}, [script]
    while waiting:
        new_sources = _local_imports(waiting.pop(), root) - sources
        sources |= new_sources
        waiting += new_sources
    return sorted(sources)


@cache
def _local_imports(path: Path, root: Path) -> frozenset[Path]:
    """Return the modules under ``root`` that a file imports directly, and their packages."""
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
    """Reuse the digests of unchanged files from ``file``; :func:`save_digests` writes it. Call it before any digest."""
    global _known
    _known = DigestCache(file)


def save_digests() -> None:
    """Write the file that :func:`load_digests` named."""
    _known.keep()


def resource_files(source: Path) -> list[Path]:
    """Return the files of ``resources/`` that a module declares: ``RESOURCE_FILES = ("organs/lite.onnx", "lexicon")``.

    A folder means every file in it.
    """
    paths = [RESOURCES / name for name in _declared(source)]
    return [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


@cache
def _declared(source: Path) -> tuple[str, ...]:
    if "RESOURCE_FILES" not in source.read_text(encoding="utf-8"):  # parsing every module would double the parse
        return ()
    declaration = read_assignments(source).get("RESOURCE_FILES")
    return () if declaration is None else tuple(ast.literal_eval(declaration))


@cache
def code_digest(script: str, *modules: str) -> str:
    """Digest a script of ``scripts/``, the modules that it imports, and the resource files that these declare.

    ``modules`` names modules imported only at run time, such as an engine: ``"cxr.imaging.organs.lite"``. Of an engine
    of an installed package, every file of that package counts.
    """
    installed = {name: module for name in modules if (module := installed_module(name))}
    files = digested_files(script, *(name for name in modules if name not in installed))
    labels = {file.relative_to(SCRIPTS.parent).as_posix(): file for file in files}
    for module in installed.values():
        labels |= installed_files(module)
    return combine_digests((label, _meaning(file)) for label, file in labels.items())


def digested_files(script: str, *modules: str) -> set[Path]:
    """Return the files that :func:`code_digest` reads for the same arguments."""
    sources = set(local_sources(SCRIPTS / script))
    for name in modules:
        file = module_file(name, SCRIPTS)
        if file is None:
            raise FileNotFoundError(f"{name} is not a module under scripts/")
        sources.update(local_sources(file))
    return sources.union(*(resource_files(source) for source in sources))


def installed_module(name: str) -> str:
    """Return the module of an engine of an installed package, "" if ``name`` is a module under scripts/."""
    package, _, engine = name.rpartition(".")
    is_built_in = module_file(name, SCRIPTS) is not None
    return "" if is_built_in else installed_engines(package.rpartition(".")[2]).get(engine, "")


def packages_folder(module: str) -> Path:
    """Return the folder that holds an installed module's package; it is not imported: libraries may be missing."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise UserError(f"the entry point of an engine names the module {module}, which is not installed: install it")
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


def installed_files(module: str) -> dict[str, Path]:
    """Return {path below the folder of packages: file} of the package of an installed module."""
    folder, top = packages_folder(module), module.partition(".")[0]
    files = [*(folder / top).rglob("*"), folder / f"{top}.py"]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file() and path.suffix != ".pyc"}

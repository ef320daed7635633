"""Digest the meaning of a file: code without docstrings, comments and layout; the data of YAML; the bytes of others.

So a reworded comment re-runs nothing, and a change of ``30.0`` to ``31.0`` re-runs its users. The serialisation is our
own, because Python's differs between versions. Fields without a value are left out, so that new fields of a new version
change no digest.
"""

import ast
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

VERSION = 1
"""Version of the rules below; a new version changes every digest."""
SETTLED_NS = 2_000_000_000
"""Age above which size and time prove a file unchanged; clocks of file systems are coarse."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def meaning_digest(path: Path) -> bytes:
    """Return the digest of a file's meaning, or of its bytes if it cannot be parsed."""
    content = path.read_bytes()
    try:
        if path.suffix == ".py":
            content = "\n".join(_tokens(ast.parse(content))).encode("utf-8", "surrogatepass")
        elif path.suffix in (".yaml", ".yml"):
            content = json.dumps(yaml.load(content, _LOADER), default=str).encode()
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

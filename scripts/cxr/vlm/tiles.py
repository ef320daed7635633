"""Models whose image tiling differs from the published one, as ``tiles`` and ``grid`` of a recipe say.

The tiling is written into the model's files (families with ``has_tiling`` and ``write_tiling``), so that every program
uses it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cxr.base.engines import engine_module

SIDE_FILE_SUFFIXES = (".json", ".txt", ".jinja", ".model")
"""Suffixes of the files next to a model's weights."""


def needs_tiling(name: str, folder: str | Path, tiling: Mapping) -> bool:
    """True if a model of the family ``name`` has another tiling than ``tiling``; {} accepts any."""
    return bool(tiling) and not _family_module(name).has_tiling(Path(folder), **tiling)


def apply_tiling(name: str, folder: Path, tiling: Mapping) -> None:
    """Change the tiling of a model in a folder to ``tiling``; nothing is written if it has it already."""
    if needs_tiling(name, folder, tiling):
        _family_module(name).write_tiling(folder, **tiling)


def link_model(name: str, source: str | Path, folder: Path, tiling: Mapping) -> None:
    """Fill a folder with links to a model's weights and copies of its other files, changed to ``tiling``."""
    for path in sorted(Path(source).iterdir()):
        if path.suffix in SIDE_FILE_SUFFIXES:
            (folder / path.name).write_bytes(path.read_bytes())
        else:
            (folder / path.name).symlink_to(path.resolve())
    apply_tiling(name, folder, tiling)


@contextmanager
def linked_model(name: str, source: Path, tiling: Mapping) -> Iterator[Path]:
    """Yield a folder of the model with ``tiling`` ({}: any): ``source`` itself, or a temporary folder of links."""
    if not needs_tiling(name, source, tiling):
        yield source
        return
    with TemporaryDirectory() as links:
        link_model(name, source, Path(links), tiling)
        yield Path(links)


def _family_module(name: str):
    return engine_module("cxr.vlm.families", name)

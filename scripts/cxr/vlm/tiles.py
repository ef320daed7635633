"""Models that cut pictures into tiles in another way than their makers did, as ``tiles`` and ``grid`` of a recipe say.

Their own files say so (of a family with ``cuts`` and ``recut``), so that all who read them do the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cxr.base.engines import engine_module

BESIDE = (".json", ".txt", ".jinja", ".model")
"""Endings of the files beside a model's weights."""


def differs(name: str, folder: str | Path, tiling: Mapping) -> bool:
    """Return whether a model of the family ``name`` cuts pictures in another way than ``tiling`` asks, {} for any."""
    return bool(tiling) and not _family(name).cuts(Path(folder), **tiling)


def recut(name: str, folder: Path, tiling: Mapping) -> None:
    """Make a model in a folder cut pictures as ``tiling`` asks; nothing is written where it does so already."""
    if differs(name, folder, tiling):
        _family(name).recut(folder, **tiling)


def link(name: str, source: str | Path, folder: Path, tiling: Mapping) -> None:
    """Fill a folder with links to a model's weights and copies of its other files, of which some say ``tiling``."""
    for path in sorted(Path(source).iterdir()):
        if path.suffix in BESIDE:
            (folder / path.name).write_bytes(path.read_bytes())
        else:
            (folder / path.name).symlink_to(path.resolve())
    recut(name, folder, tiling)


@contextmanager
def linked(name: str, source: Path, tiling: Mapping) -> Iterator[Path]:
    """Yield the folder of a model that cuts pictures as ``tiling`` asks, {} for as it does: links in a folder that is
    removed afterwards, or ``source`` itself.
    """
    if not differs(name, source, tiling):
        yield source
        return
    with TemporaryDirectory() as links:
        link(name, source, Path(links), tiling)
        yield Path(links)


def _family(name: str):
    return engine_module("cxr.vlm.families", name)

"""Tables of public datasets that the package torchxrayvision 1.5.7 holds: read at test time, copied nowhere."""

import importlib.util
import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
HOW = "CXR_ILS_XRV names its wheel (pip download --no-deps torchxrayvision==1.5.7)"


def xrv_data(name: str) -> bytes | None:
    """Return a file of the package's data folder; None where the package is not at hand.

    It is the wheel ``CXR_ILS_XRV``, or the one that `make openi` downloads, or the installed package, which is found
    without importing it.
    """
    named = os.environ.get("CXR_ILS_XRV")
    wheels = [Path(named)] if named else sorted((ROOT / "openi" / ".package").glob("torchxrayvision-*.whl"))
    if wheels:
        with zipfile.ZipFile(wheels[0]) as package:
            return package.read(f"torchxrayvision/data/{name}")
    spec = importlib.util.find_spec("torchxrayvision")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / "data" / name).is_file():
            return path.read_bytes()
    return None


def xrv_bytes(name: str) -> bytes:
    """Return a file of the package's data folder; skip the test where the package is not at hand."""
    found = xrv_data(name)
    if found is None:
        pytest.skip(f"torchxrayvision's data folder is not at hand: {HOW}")
    return found


def xrv_table(name: str, **how) -> pl.DataFrame:
    """Return a table of the package's data folder; skip the test where it is not at hand."""
    return pl.read_csv(xrv_bytes(name), **how)


def xrv_file(name: str, path: Path) -> Path:
    """Write a file of the package's data folder to a test's own folder, as a reader gets it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(xrv_bytes(name))
    return path

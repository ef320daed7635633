"""Tables of public datasets that the wheel of torchxrayvision 1.5.7 holds: read at test time, copied nowhere."""

import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

from conftest import ROOT


def xrv_table(name: str, **how) -> pl.DataFrame:
    """Return a table of the wheel, ``name`` in its data folder; skip the test where there is no wheel.

    The wheel is the file ``CXR_ILS_XRV``, or the one that `make openi` downloads.
    """
    named = os.environ.get("CXR_ILS_XRV")
    wheels = [Path(named)] if named else sorted((ROOT / "openi" / ".package").glob("torchxrayvision-*.whl"))
    if not wheels:
        pytest.skip("no wheel of torchxrayvision: CXR_ILS_XRV names it (pip download --no-deps torchxrayvision==1.5.7)")
    with zipfile.ZipFile(wheels[0]) as package:
        return pl.read_csv(package.read(f"torchxrayvision/data/{name}"), **how)

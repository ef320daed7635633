"""Reading the YAML files of ``resources/``."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cxr.base.paths import RESOURCES


@cache
def load_resource(name: str) -> Any:
    """Return the content of a file of ``resources/``, such as "radvlm/labels.yaml"; it is not to be changed."""
    return yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8"))

"""Reading the YAML files of ``resources/``."""

from pathlib import Path
from typing import Any

import yaml

from cxr.base.paths import RESOURCES


def load_resource(name: str) -> Any:
    """Return the content of a file of ``resources/``, such as "radvlm/labels.yaml"."""
    return yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8"))

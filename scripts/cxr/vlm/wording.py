"""The wording of localization questions, with instructions on the form of the answer."""

import re
from functools import cache
from pathlib import Path

import yaml

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.vlm.conventions import Convention

RESOURCE_FILES = ("vlm/wording.yaml",)
WORDING = RESOURCES / RESOURCE_FILES[0]
_SLOT = re.compile(r"\{(query|form|coordinates)\}")


@cache
def _load_wordings(path: str) -> dict:
    wordings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(wordings, dict) or {"locate", "form", "coordinates"} - wordings.keys():
        raise UserError(f"{path} lacks locate, form or coordinates: give a file such as {WORDING.name}")
    return wordings


def localization_question(query: str, convention: Convention, path: str = "") -> str:
    """Return the question for the boxes of ``query``. ``path``: another file of wordings.

    Slots are filled in one pass: braces in the query stay unchanged. Raises UserError for a file without a sentence for
    the convention.
    """
    wordings = _load_wordings(path or str(WORDING))
    coordinates = wordings["coordinates"].get(convention.name)
    if coordinates is None:
        raise UserError(f"{path or WORDING.name} has no coordinates for {convention.name!r}: add its sentence")
    form = wordings["form"].get(convention.name, wordings["form"]["default"])
    slot_values = {"query": query, "form": form, "coordinates": coordinates}
    return _SLOT.sub(lambda slot: slot_values[slot[1]], wordings["locate"])

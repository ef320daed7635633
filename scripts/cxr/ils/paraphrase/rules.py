"""The default engine: wordings from ``resources/paraphrase/wordings.yaml``, without a model."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from cxr.base.lesions import LESION_TYPES
from cxr.base.paths import RESOURCES
from cxr.ils.paraphrase.engine import Engine, Rewording, Task
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.templates import Instruction, join_names

RESOURCE_FILES = ("paraphrase/wordings.yaml",)


@cache
def _read_wordings() -> dict:
    return yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


def load(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine."""
    del execution

    def reword(tasks: Sequence[Task], persona: str) -> list[Rewording]:
        return [Rewording(tuple(list_wordings(task.meaning, persona)[: options.per_persona])) for task in tasks]

    return Engine(reword, "rules")


def list_wordings(meant: Instruction, persona: str) -> list[str]:
    """Return all wordings of a persona for an instruction."""
    persona_wordings = _read_wordings()[persona]
    lesion = next(lesion for lesion in LESION_TYPES if lesion.name == meant.word)
    slots = {
        "lesion": lesion.wordings[persona],
        "place": join_names([_write_place(persona_wordings, name) for name in meant.location]),
    }
    return [frame.format(**slots) for frame in persona_wordings[meant.type]]


def _write_place(persona_wordings: dict, location: str) -> str:
    side, _, level = location.partition(" ")
    return f"the {persona_wordings['places'][level].format(side=side)}"

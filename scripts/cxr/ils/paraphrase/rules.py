"""The default engine ``rules``, which fills in the templates of ``resources/paraphrase/wordings.yaml``."""

from collections.abc import Sequence

from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.ils.paraphrase.engine import Engine, Rewording, Task
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.templates import Instruction, join_names

RESOURCE_FILES = ("paraphrase/wordings.yaml",)


def load(options: ParaphraseOptions, execution: dict) -> Engine:
    """Return the engine, which runs no model, so ``execution`` is not used."""

    def reword(tasks: Sequence[Task], persona: str) -> list[Rewording]:
        return [Rewording(tuple(list_wordings(task.meaning, persona)[: options.per_persona])) for task in tasks]

    return Engine(reword, "rules")


def list_wordings(meant: Instruction, persona: str) -> list[str]:
    """Return all wordings of an instruction in the style of a persona such as "layperson"."""
    persona_wordings = load_resource(RESOURCE_FILES[0])[persona]
    lesion = next(lesion for lesion in LESION_TYPES if lesion.name == meant.word)
    places, frames = persona_wordings["places"], persona_wordings[meant.type]
    parts = [name.partition(" ") for name in meant.location]
    place = join_names([f"the {places[level].format(side=side)}" for side, _, level in parts])
    return [frame.format(lesion=lesion.wordings[persona], place=place) for frame in frames]

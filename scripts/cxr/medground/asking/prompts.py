"""Prompts of MedGround's language models: the default ones, or a user's file with the same keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.paths import RESOURCES
from cxr.llm.guards import fill_slots, neutralize

RESOURCE_FILES = ("medground/prompts.yaml",)
PROMPTS = RESOURCES / RESOURCE_FILES[0]


@dataclass(frozen=True)
class Prompts:
    """Wordings of a user's file, completed by the default ones. ``path``: the file, for messages."""

    wordings: Mapping
    path: str

    @classmethod
    def read(cls, path: str | Path = "") -> "Prompts":
        """Read a user's file, or the default one. Raises UserError for invalid YAML or an unknown key."""
        ours = _read_yaml(str(PROMPTS))
        if not path:
            return cls(ours, str(PROMPTS))
        theirs = _read_yaml(str(path))
        unknown = sorted(set(theirs) - set(ours))
        if unknown:
            raise UserError(f"{path} has the key {unknown[0]!r}: choose of {', '.join(ours)}")
        return cls({**ours, **theirs}, str(path))

    def prompt(self, name: str, domain: str, user: str = "user") -> dict[str, str]:
        """Return {system, user} of a prompt for a domain; ``user``: key of the user text.

        Raises UserError if the file lacks one.
        """
        texts = self.wordings[name]
        if not isinstance(texts, Mapping) or not all(isinstance(texts.get(role), str) for role in ("system", user)):
            raise UserError(f"{self.path}: {name} lacks system or {user}: give both as texts")
        note = self.wordings["domain_notes"].get(domain, self.wordings["domain_notes"]["other"])
        return {"system": fill_slots(texts["system"], domain_note=note), "user": texts[user]}

    def description(self, text: str) -> str:
        """Return the text for the slot of an image's description."""
        return neutralize(text) if text else self.wordings["no_description"]

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of words: refusals, affirms or denies."""
        return tuple(map(str, self.wordings[name]))


@cache
def _read_yaml(path: str) -> Mapping:
    try:
        wordings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse_machine_fault(path, error)
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{path} is no YAML ({first[:120]}): give a file such as {PROMPTS.name}") from None
    if not isinstance(wordings, Mapping):
        raise UserError(f"{path} has no keys: give a file such as {PROMPTS.name}")
    return wordings

"""The patterns of ``resources/radvlm/filter.yaml``, compiled."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text during rewriting: a word was cut, a subject lost its predicate, a word is protected."""
_SLOT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Rule:
    """Replace matches of ``find`` by ``to`` if ``lead`` matches before and ``without`` does not match from there on."""

    reason: str
    find: re.Pattern
    to: str
    lead: re.Pattern | None
    without: re.Pattern | None


@dataclass(frozen=True)
class Patterns:
    """The compiled patterns, in file order.

    protected: kept text; tails: rules for ends of clauses, applied first; drop: (reason, pattern) of clauses to drop;
    bare: words without meaning of their own; nouns: those of them that name a body part; past: words before a past
    illness; trigger: sentences without a match are kept; absence: statements that a finding is gone (group ``what``).
    """

    protected: tuple[re.Pattern, ...]
    tails: tuple[Rule, ...]
    drop: tuple[tuple[str, re.Pattern], ...]
    rules: tuple[Rule, ...]
    bare: frozenset[str]
    nouns: frozenset[str]
    past: frozenset[str]
    trigger: re.Pattern
    absence: tuple[re.Pattern, ...]


@cache
def load_patterns(path: str) -> Patterns:
    """Load the patterns, once per process. Raises KeyError for an unknown slot."""
    resource = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    slots: dict[str, str] = {}

    def fill_slots(text: str) -> str:
        return _SLOT.sub(lambda match: slot(match[1]), text)

    def slot(name: str) -> str:
        if name not in slots:
            forms = sorted(map(str, resource["slots"][name]), key=lambda form: -len(form))
            slots[name] = "(?:" + "|".join(fill_slots(form) for form in forms) + ")"
        return slots[name]

    def compiled(text: str | None) -> re.Pattern | None:
        return None if text is None else re.compile(fill_slots(text), re.IGNORECASE)

    def rule(row: dict) -> Rule:
        to = row["to"].replace("{cut}", CUT).replace("{lone}", LONE)
        return Rule(row["why"], compiled(row["find"]), to, compiled(row.get("lead")), compiled(row.get("not")))

    return Patterns(
        protected=tuple(compiled(rf"\b{text}\b") for text in resource["kept"]),
        tails=tuple(map(rule, resource["tails"])),
        drop=tuple((reason, compiled(rf"^(?:{text})")) for reason, texts in resource["drop"].items() for text in texts),
        rules=tuple(map(rule, resource["rules"])),
        bare=frozenset(map(str, resource["bare"])),
        nouns=frozenset(resource["bare_nouns"]),
        past=frozenset(resource["past"]),
        trigger=re.compile("|".join(resource["trigger"]), re.IGNORECASE),
        absence=tuple(compiled(text) for text in resource["absence"]),
    )

"""The patterns of ``resources/radvlm/filter.yaml``, compiled."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

CUT, LONE, SAFE = "\ue001", "\ue002", "\u01c2"
"""Marks in a text at work: a word was taken out, a subject lost its predicate, a word is safe from all rules."""
_SLOT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Rule:
    """Replace what matches ``find`` by ``to``, where ``lead`` matches before it and ``without`` nowhere from there."""

    reason: str
    find: re.Pattern
    to: str
    lead: re.Pattern | None
    without: re.Pattern | None


@dataclass(frozen=True)
class Patterns:
    """What goes, in the order of the file.

    kept: what no rule touches; tails: ends of a clause that go first; drop: (reason, pattern of a clause that goes);
    bare: words that say nothing alone; nouns: those of them that name a part; past: words before an illness that is
    over; trigger: a sentence without it stays as it is; absence: how a clause tells that a finding has gone, the
    finding in the group ``what``.
    """

    kept: tuple[re.Pattern, ...]
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
    """Read the patterns, once per process. Raises KeyError for a slot that is not in the file."""
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
        kept=tuple(compiled(rf"\b{text}\b") for text in resource["kept"]),
        tails=tuple(map(rule, resource["tails"])),
        drop=tuple((reason, compiled(rf"^(?:{text})")) for reason, texts in resource["drop"].items() for text in texts),
        rules=tuple(map(rule, resource["rules"])),
        bare=frozenset(map(str, resource["bare"])),
        nouns=frozenset(resource["bare_nouns"]),
        past=frozenset(resource["past"]),
        trigger=re.compile("|".join(resource["trigger"]), re.IGNORECASE),
        absence=tuple(compiled(text) for text in resource["absence"]),
    )

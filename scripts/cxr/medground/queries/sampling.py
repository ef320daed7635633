"""Sampling of an image's queries by kind of answer and by family of attributes, such as size or position. Queries whose
answer stays the same when outlines are shifted (robust) are preferred to other queries (fragile)."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from cxr.base.seeds import make_rng
from cxr.medground.logic.atoms import YES, atom_family
from cxr.medground.logic.decide import ANSWER_CHANGES, ROBUST, Outlines, Query
from cxr.medground.queries.forms import KINDS, FormSearch, Target, mirror_query, mixes_sides, target_kind
from cxr.medground.queries.grammar import QueryWriter
from cxr.medground.stage_settings import QueriesSettings

TRIES = 12  # most families that are tried per query
TRIES_A_KIND = 4  # families that are tried before another kind of answer is drawn
FORMS_A_TRY = 24  # forms tried per family
WORDINGS = 6
NUMBERED = 0.6  # probability that the text states the number of regions, if there are several
MOST_NUMBERED = 10
NUM_WORDS, SPREAD = 12, 2.5
"""Mean (paper) and standard deviation of the number of words to which queries are lengthened."""
BEST = (ROBUST, True)


class SampledQuery(NamedTuple):
    """A query in logical form, its text and the regions of its answer, with their ``kind``: single, subset or all."""

    kind: str
    target: Target
    query: Query
    text: str


class QuerySampler:
    """Sampler of one image's queries. ``withheld``: whether the last draw gave None because shifts of the outlines
    change the answers, or make too many of them uncertain."""

    def __init__(self, outlines: Outlines, forms: FormSearch, options: QueriesSettings, key: tuple):
        self.decider, self.outlines, self.options, self.key = forms.decider, outlines, options, key
        self.by_kind: dict[str, dict[str, dict[Target, list[Query]]]] = {}
        for target in sorted(forms.by_target):
            kind = target_kind(target, forms.decider)
            for form in forms.by_target[target] if kind else ():
                for name in sorted(form.families() - {"class"}) or ["class"]:
                    forms_by_target = self.by_kind.setdefault(kind, {}).setdefault(name, {})
                    forms_by_target.setdefault(target, []).append(form)
        self.used: set[tuple[Target, Query]] = set()
        self.withheld, self._fragile = False, 0
        self._ranks: dict[tuple[Target, Query], tuple[int, bool]] = {}

    def draw(self, number: int) -> SampledQuery | None:
        """Return a new query, whose answer survives shifts of outlines if possible, or None if no form is left, if
        shifts change every answer, or if more become uncertain than ``options.fragile`` allows. ``number``: a seed."""
        draw = make_rng(*self.key, number)
        best: tuple[tuple[int, bool], str, Target, Query] | None = None
        for kind, target, form in self._tried(draw):
            rank = self._rank(target, form)
            if best is None or rank > best[0]:
                best = rank, kind, target, form
            if rank == BEST:
                break
        self.withheld = False
        if best is None:
            return None
        (grade, _), kind, target, form = best
        if grade < ROBUST:
            most_fragile = self.options.fragile * (len(self.used) + 1)
            self.withheld = grade == ANSWER_CHANGES or self._fragile + 1 > most_fragile
            if self.withheld:
                return None
            self._fragile += 1
        self.used.add((target, form))
        return SampledQuery(kind, target, *self._worded(form, target, kind, draw))

    def _tried(self, draw: random.Random) -> Iterator[tuple[str, Target, Query]]:
        """Yield random unused forms as (kind of answer, target, form), with a preference for forms of few atoms."""
        kind = ""
        for at in range(TRIES if self.by_kind else 0):
            if at % TRIES_A_KIND == 0:
                kinds = sorted(self.by_kind)
                (kind,) = draw.choices(kinds, [KINDS[name] for name in kinds])
            forms_by_target = self.by_kind[kind][draw.choice(sorted(self.by_kind[kind]))]
            targets = sorted(forms_by_target)
            for _ in range(FORMS_A_TRY):
                target = draw.choice(targets)
                form = min((draw.choice(forms_by_target[target]) for _ in range(3)), key=lambda query: len(query.atoms))
                if (target, form) not in self.used:
                    yield kind, target, form

    def _rank(self, target: Target, form: Query) -> tuple[int, bool]:
        """Return (grade, is_specific) of a form. The grade is that of :meth:`Outlines.grade`. A form is not specific if
        it names left or right, but has the same answer with both exchanged."""
        if (target, form) not in self._ranks:
            mirrored_form = mirror_query(form)
            says = mirrored_form == form or self.decider.answer(mirrored_form).selected != target
            self._ranks[target, form] = self.outlines.grade(form, target), says
        return self._ranks[target, form]

    def _worded(self, form: Query, target: Target, kind: str, draw: random.Random) -> tuple[Query, str]:
        """Return (form, text) with a text of a random length. To reach this length, atoms that change neither the
        answer nor the grade are added to the form."""
        speaker = QueryWriter(self.decider.scene, draw)
        length = draw.gauss(NUM_WORDS, SPREAD)
        grade = self.outlines.grade(form, target)
        numbered_form = self._counted(form, target, kind, draw)
        if self.outlines.grade(_drop_all(numbered_form), target) >= grade:
            form = numbered_form
        free_families = {*self.options.families, "class"} - {atom_family(atom) for atom in form.atoms}
        atoms = ((atom, values) for atom, values in self.decider.atoms.items() if atom_family(atom) in free_families)
        extra_atoms = [atom for atom, values in atoms if all(values[region] == YES for region in target)]
        draw.shuffle(extra_atoms)
        text = _closest_wording(speaker, form, len(target), length)
        while len(text.split()) < length and extra_atoms:
            richer = replace(form, atoms=(*form.atoms, extra_atoms.pop()))
            stated_form = _drop_all(richer)
            answer = self.decider.answer(stated_form)
            keeps_answer = not self._clashes(richer) and answer.decidable and answer.selected == target
            if not keeps_answer or self.outlines.grade(stated_form, target) < grade:
                continue
            longer = _closest_wording(speaker, richer, len(target), length)
            if _length_error(longer, length) <= _length_error(text, length):
                form, text = richer, longer
        return _drop_all(form), text

    def _counted(self, form: Query, target: Target, kind: str, draw: random.Random) -> Query:
        """Return the form, to which the number of its regions, or -1 for the word "all", is added at random."""
        may_state_number = "number" in self.options.families and self.decider.is_closed(form.atoms)
        if len(target) == 1 or not may_state_number or form.ordinal:
            return form
        if len(target) <= MOST_NUMBERED and draw.random() < NUMBERED:
            return replace(form, number=len(target))
        return replace(form, number=-1) if kind == "all" and draw.random() < 0.5 else form

    def _clashes(self, query: Query) -> bool:
        families = Counter(atom_family(atom) for atom in query.atoms)
        is_sided = self.decider.scene.radiological is not None
        return (
            any(count > 1 for family, count in families.items() if family != "position")
            or ("position:middle" in query.atoms and families["position"] > 1)
            or (families["size"] > 0 and query.ordinal in ("largest", "smallest"))
            or (is_sided and mixes_sides(query))
        )


def _drop_all(form: Query) -> Query:
    """Return a form with the number 0, for no stated number, in place of -1 for the word "all"."""
    return replace(form, number=max(0, form.number))


def _closest_wording(speaker: QueryWriter, form: Query, count: int, length: float) -> str:
    return min((speaker.say(form, count) for _ in range(WORDINGS)), key=lambda text: _length_error(text, length))


def _length_error(text: str, length: float) -> float:
    return abs(len(text.split()) - length)

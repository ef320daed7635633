"""Combining a model's answers and the mapped locations into tuples, and adding the fields that Figure 9 lacks.

Figure 9 has no lesion types, hedge grades, spans or "no new". The lexicon assigns an entity's lesion type. If the rules
engine reads the same statement in the same sentence, its grade, span and denial are used. Otherwise a tentative finding
is weak, and its span is its own words or the whole sentence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cxr.base.vocabulary import LUNGS, SIDES, ZONE_LABELS, side_of
from cxr.language.reports import schema
from cxr.language.reports.llm.answers import normal
from cxr.language.reports.llm.terms import Term, terms_of
from cxr.language.reports.rules import mapping as rules_mapping
from cxr.language.reports.rules import mentions
from cxr.language.reports.rules.lexicon import Entity, Lexicon
from cxr.language.reports.rules.places import Place
from cxr.language.reports.rules.tokens import words_of

_STEM = 5
"""Number of letters that match a word of an entity with its sentence ("atelectatic" for "atelectasis")."""


@dataclass(frozen=True)
class Joiner:
    """Converts answers to tuples.

    places: {(location, entity): (category, labels)} of all mapped pairs. rules: the rules engine. unsided_effusion: an
    effusion without a side is in both bases.
    """

    places: Mapping[Term, tuple[str | None, list[str]]]
    lexicon: Lexicon
    rules: Callable[[list[str]], list[dict]]
    unsided_effusion: bool

    def tuples(self, findings: list[dict], sentences: list[str]) -> list[dict]:
        """Return the tuples of a section's findings; ``span`` counts characters of its sentence.

        Raises :class:`cxr.language.reports.schema.Quarantined` for a finding that its sentence does not name.
        """
        read = self.rules(sentences)
        made = []
        for number, finding in enumerate(findings):
            sentence = sentences[finding["sentence_index"] - 1]
            entity = self._entity(finding["entity"])
            if not self._supported(entity, sentence):
                raise schema.Quarantined(f"findings.{number}: its sentence does not name it")
            beside = [item for item in read if item["sentence_index"] == finding["sentence_index"]]
            made.append(self._finding(finding, entity, sentence, self._same(entity, finding, beside)))
        return [schema.as_dict(item) for item in made]

    def _entity(self, text: str) -> Entity:
        found = self._entities(text)
        known = next((entity for entity in found if entity.lesion), found[0] if found else None)
        return known or Entity(normal(text))

    def _entities(self, text: str) -> list[Entity]:
        doc = self.lexicon.nlp.make_doc(text)
        found = mentions.find([token.text for token in doc], self.lexicon.match(doc), self.lexicon)
        return [mention.entity for mention in found if mention.entity is not None]

    def _supported(self, entity: Entity, sentence: str) -> bool:
        """Tell whether a sentence contains a word of the entity, or a synonym."""
        words = [word for word, _, _ in words_of(sentence)]
        stems = [word[:_STEM] for word, _, _ in words_of(entity.name) if len(word) > 2]
        if any(word.startswith(stem) for word in words for stem in stems):
            return True
        return any(_alike(entity, told) for told in self._entities(sentence))

    def _same(self, entity: Entity, finding: dict, read: list[dict]) -> dict | None:
        """Return the rules engine's tuple of the same statement, if several that of the same location; else None."""
        places = [normal(text) for text in finding["location"] or ()]
        same = [
            item
            for item in read
            if item["presence"] == finding["presence"]
            and _alike(entity, Entity(item["entity"], lesion=item["lesion_type"]))
        ]
        return min(same, key=lambda item: (item["location"] or []) != places, default=None)

    def _finding(self, finding: dict, entity: Entity, sentence: str, read: dict | None) -> schema.Finding:
        negative, tentative = finding["presence"] == "negative", finding["certainty"] == "tentative"
        graded = read is not None and read["certainty"] == finding["certainty"]
        explained = self._explanations(finding)
        where, labels = self._place(finding, entity)
        texts = [normal(text) for text in finding["location"] or ()]
        places = [Place(text, self._sides(text), None) for text in texts]
        hedge = "weak" if tentative else "definite"
        return schema.Finding(
            entity=normal(finding["entity"]),
            sentence_index=finding["sentence_index"],
            presence=finding["presence"],
            certainty=finding["certainty"],
            location=texts or None,
            predicted_lesion_type=next(iter(explained)) if len(explained) == 1 else None,
            category=where,
            labels=labels,
            lesion_type=rules_mapping.lesion(entity, where),
            hedge=read["hedge"] if graded else hedge,
            span=read["span"] if read else _span(finding["entity"], sentence),
            candidates=list(explained),
            predicted_hedge=((graded and read["predicted_hedge"]) or hedge) if explained else None,
            related=_neighbours(entity, explained.values(), read),
            block=[] if negative else rules_mapping.block(entity, places, texts, where, labels, self.lexicon),
            denies=not negative or read is None or read["denies"],
        )

    def _explanations(self, finding: dict) -> dict[str, Entity]:
        """Return {lesion type or name: entity} of a finding's explanations, without the finding itself."""
        text = finding["predicted_lesion_type"]
        if text is None or normal(text) == normal(finding["entity"]):
            return {}
        return {told.lesion or told.name: told for told in self._entities(text) or [Entity(normal(text))]}

    def _place(self, finding: dict, entity: Entity) -> tuple[str | None, list[str]]:
        """Return category and zone labels, by the rules engine's conventions where Figure 10 has none."""
        told = [self.places.get(term) for term in terms_of(finding)]
        if None in told:
            return entity.category, []  # an unmapped location could be anywhere, so the finding blocks negatives
        found = {label for _, labels in told for label in labels}
        categories = [category for category, _ in told if category]
        where = "lung" if "lung" in categories else next(iter(categories), entity.category)
        if entity.category == "heart":
            where = "heart"
        effusion = entity.lesion == "effusion"
        if (where == "pleura" and effusion) or (where == "lung" and effusion and not finding["location"]):
            sides = {side for text in finding["location"] or () for side in self._sides(text)}
            found = {f"{side} lung base" for side in sides or (SIDES if self.unsided_effusion else ())}
        elif where != "lung":
            found = set()
        elif effusion:
            found = {f"{side_of(label)} lung base" if label in LUNGS else label for label in found}
        zoned = {side_of(label) for label in found if label not in LUNGS}
        return where, [label for label in ZONE_LABELS if label in found - {f"{side} lung" for side in zoned}]

    def _sides(self, text: str) -> tuple[str, ...]:
        hits = self.lexicon.match(self.lexicon.nlp.make_doc(text.lower()))
        told = {value if tag == "side" else value[0] for tag, value, _, _ in hits if tag in ("side", "fused")}
        return tuple(side for side in SIDES if told & {side, "both"})


def _alike(first: Entity, second: Entity) -> bool:
    return first.name == second.name or (first.lesion is not None and first.lesion == second.lesion)


def _neighbours(entity: Entity, explained: Iterable[Entity], read: dict | None) -> str | list[str] | None:
    """Return the lesion types whose negatives a finding blocks, in the schema's form."""
    told = [entity.related, *(each.related for each in explained if each.related != entity.lesion)]
    seen = read["related"] if read else None
    told += seen if isinstance(seen, list) else [seen]
    found = list(dict.fromkeys(name for name in told if name))
    return found if len(found) > 1 else next(iter(found), None)


def _span(entity: str, sentence: str) -> list[int]:
    start = sentence.lower().find(entity.lower().strip())
    return [start, start + len(entity.strip())] if start >= 0 else [0, len(sentence)]

"""Conversion of a language model's findings and mapped locations to tuples, with the fields that Figure 9 lacks.

The answers of Figure 9 have no lesion types, certainty grades or positions in the text, and do not mark negatives that
deny nothing ("no new"). The lexicon gives the lesion types. If the rules engine finds the same statement in the
sentence, its grade, position (``span``) and ``denies`` are used. Otherwise, a tentative finding is graded weak, and its
position is that of the entity or of the whole sentence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cxr.base.vocabulary import LUNGS, SIDES, side_of
from cxr.language.reports import schema
from cxr.language.reports.llm.terms import Term, finding_terms, normalize_term
from cxr.language.reports.rules import mapping as rules_mapping
from cxr.language.reports.rules import mentions
from cxr.language.reports.rules.lexicon import Entity, Lexicon
from cxr.language.reports.rules.places import Place
from cxr.language.reports.rules.tokens import split_words

_STEM = 5
"""Number of first letters that a word of a sentence and of the entity must share ("atelectatic", "atelectasis")."""


@dataclass(frozen=True)
class Joiner:
    """A converter of the model's findings to finding tuples. ``places`` is {(location, entity): (category, zone
    labels)} of all mapped pairs. ``rules`` is the function of the rules engine that converts sentences to tuples.
    ``unsided_effusion``: whether an effusion without a side gets both lung bases."""

    places: Mapping[Term, tuple[str | None, list[str]]]
    lexicon: Lexicon
    rules: Callable[[list[str]], list[dict]]
    unsided_effusion: bool

    def tuples(self, findings: list[dict], sentences: list[str]) -> list[dict]:
        """Return a section's findings as finding tuples. ``span`` is a range of characters in the finding's sentence.
        Raises :class:`cxr.language.reports.schema.Quarantined` if a finding's sentence does not mention the entity."""
        rules_tuples = self.rules(sentences)
        joined_findings = []
        for number, finding in enumerate(findings):
            sentence = sentences[finding["sentence_index"] - 1]
            entity = self._entity(finding["entity"])
            if not self._supported(entity, sentence):
                raise schema.Quarantined(f"findings.{number}: its sentence does not mention the entity")
            sentence_tuples = [item for item in rules_tuples if item["sentence_index"] == finding["sentence_index"]]
            joined_findings.append(
                self._finding(finding, entity, sentence, self._same(entity, finding, sentence_tuples))
            )
        return [dict(vars(item)) for item in joined_findings]

    def _entity(self, text: str) -> Entity:
        entities = self._entities(text)
        best_entity = next((entity for entity in entities if entity.lesion), entities[0] if entities else None)
        return best_entity or Entity(normalize_term(text))

    def _entities(self, text: str) -> list[Entity]:
        doc = self.lexicon.nlp.make_doc(text)
        text_mentions = mentions.find_mentions([token.text for token in doc], self.lexicon.match(doc), self.lexicon)
        return [mention.entity for mention in text_mentions if mention.entity is not None]

    def _supported(self, entity: Entity, sentence: str) -> bool:
        """Return whether a sentence contains a word or a synonym of the entity."""
        words = [word for word, _, _ in split_words(sentence)]
        stems = [word[:_STEM] for word, _, _ in split_words(entity.name) if len(word) > 2]
        if any(word.startswith(stem) for word in words for stem in stems):
            return True
        return any(_alike(entity, sentence_entity) for sentence_entity in self._entities(sentence))

    def _same(self, entity: Entity, finding: dict, read: list[dict]) -> dict | None:
        """Return the rules engine's tuple (in ``read``) that affirms or denies the same entity as ``finding``, or None.
        A tuple at the same location has priority."""
        places = [normalize_term(text) for text in finding["location"] or ()]
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
        category, labels = self._place(finding, entity)
        texts = [normalize_term(text) for text in finding["location"] or ()]
        places = [Place(text, self._sides(text), None) for text in texts]
        hedge = "weak" if tentative else "definite"
        return schema.Finding(
            entity=normalize_term(finding["entity"]),
            sentence_index=finding["sentence_index"],
            presence=finding["presence"],
            certainty=finding["certainty"],
            location=texts or None,
            predicted_lesion_type=next(iter(explained)) if len(explained) == 1 else None,
            category=category,
            labels=labels,
            lesion_type=rules_mapping.find_lesion(entity, category),
            hedge=read["hedge"] if graded else hedge,
            span=read["span"] if read else _span(finding["entity"], sentence),
            candidates=list(explained),
            predicted_hedge=((graded and read["predicted_hedge"]) or hedge) if explained else None,
            related=_neighbours(entity, explained.values(), read),
            block=[] if negative else rules_mapping.find_blocked(entity, places, category, labels, self.lexicon),
            denies=not negative or read is None or read["denies"],
        )

    def _explanations(self, finding: dict) -> dict[str, Entity]:
        """Return {lesion type or name: entity} of the diseases that a finding may represent, other than itself."""
        text = finding["predicted_lesion_type"]
        if text is None or normalize_term(text) == normalize_term(finding["entity"]):
            return {}
        return {
            explanation.lesion or explanation.name: explanation
            for explanation in self._entities(text) or [Entity(normalize_term(text))]
        }

    def _place(self, finding: dict, entity: Entity) -> tuple[str | None, list[str]]:
        """Return (category, zone labels) of a finding by the mapping of its locations. A heart finding keeps the
        category "heart", and an effusion gets lung bases. If a location is not mapped, there are no labels."""
        mapped_places = [self.places.get(term) for term in finding_terms(finding)]
        if None in mapped_places:
            return entity.category, []  # an unmapped location could be anywhere, so nothing may be denied
        zone_labels = {label for _, labels in mapped_places for label in labels}
        categories = [category for category, _ in mapped_places if category]
        place_category = "lung" if "lung" in categories else next(iter(categories), entity.category)
        if entity.category == "heart":
            place_category = "heart"
        effusion = entity.lesion == "effusion"
        if (place_category == "pleura" and effusion) or (
            place_category == "lung" and effusion and not finding["location"]
        ):
            sides = {side for text in finding["location"] or () for side in self._sides(text)}
            zone_labels = {f"{side} lung base" for side in sides or (SIDES if self.unsided_effusion else ())}
        elif place_category != "lung":
            zone_labels = set()
        elif effusion:
            zone_labels = {f"{side_of(label)} lung base" if label in LUNGS else label for label in zone_labels}
        return place_category, rules_mapping.sort_labels(zone_labels)

    def _sides(self, text: str) -> tuple[str, ...]:
        hits = self.lexicon.match(self.lexicon.nlp.make_doc(text.lower()))
        named_sides = {value if tag == "side" else value[0] for tag, value, _, _ in hits if tag in ("side", "fused")}
        return tuple(side for side in SIDES if named_sides & {side, "both"})


def _alike(first: Entity, second: Entity) -> bool:
    return first.name == second.name or (first.lesion is not None and first.lesion == second.lesion)


def _neighbours(entity: Entity, explained: Iterable[Entity], read: dict | None) -> str | list[str] | None:
    """Return the lesion type, or a list of types, that must not be denied in a study because it has the finding
    ``entity``, or None. ``explained``: diseases that the finding may represent. ``read``: the rules engine's tuple of
    this finding, if any."""
    related_names = [
        entity.related,
        *(explanation.related for explanation in explained if explanation.related != entity.lesion),
    ]
    rules_related = read["related"] if read else None
    related_names += rules_related if isinstance(rules_related, list) else [rules_related]
    return rules_mapping.join_neighbours(related_names)


def _span(entity: str, sentence: str) -> list[int]:
    start = sentence.lower().find(entity.lower().strip())
    return [start, start + len(entity.strip())] if start >= 0 else [0, len(sentence)]

"""Measures of language, such as variety and clinical content, of queries and of class names (paper, Section 3.5)."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from cxr.base.columns import read_columns
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, read_table, write_rows
from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.medground.logic.facts import Facts, paths_by_source
from cxr.medground.logic.scene import parse_class_words, zone_phrases
from cxr.medground.logic.text import split_phrases

RESOURCE_FILES = ("medground/logic.yaml", "medground/language.yaml", "columns/medground_dataset.toml")
QUERIES = "queries"
LANGUAGE = read_columns("medground_dataset", "language")
WORDS = read_columns("medground_dataset", "words")
MAX_WORDS = 50  # most words listed per domain and split
SLOTS = ("class", "attribute", "number", "order", "place")


class Lexicon:
    """Known phrases of a source and image domain. ``phrases``: {phrase: (slot, concept)}. The slot is the phrase's role
    in a sentence, one of :data:`SLOTS` or "". The concept is its clinical meaning, such as "size:small", or ""."""

    def __init__(self, facts: Facts, domain: str):
        logic, language = map(load_resource, RESOURCE_FILES[:2])
        entry_by_phrase: dict[str, tuple[str, str]] = {}

        def add(phrases: Iterable[str], slot: str, concept: str) -> None:
            for phrase in phrases:
                entry_by_phrase.setdefault(str(phrase).lower(), (slot, concept))

        for name, forms in parse_class_words(facts.classes).items():
            add((forms.one, forms.many), "class", f"class {name}")
            for pair in forms.parents.items():
                add(pair, "class", f"class {pair[0]}")
        add(chain(*logic["generic"].items()), "class", "")
        for zone in VALID_LOCATIONS:
            if zone.partition(" ")[2] != "lung":
                add(zone_phrases(zone), "place", f"zone {zone}")
        for side, words in logic["sides"].items():
            add(words, "place", f"side {side}")
        for atom, words in logic["words"].items():
            add(words, "attribute", atom)
        self.morphology = {*language["morphology"]["shared"], *language["morphology"].get(domain, ())}
        add(self.morphology, "attribute", "")
        for name, words in logic["ordinals"].items():
            add(words, "order", f"order {name}" if name in ("largest", "smallest") else "")
        add(logic["nth"], "order", "")
        add((*logic["numbers"], *logic["all"]), "number", "")
        self.spatial = {phrase for words in logic["relations"].values() for phrase in words}
        self.spatial |= {"leftmost", "rightmost", "topmost", "lowest", "uppermost", *language["spatial"]}
        self.spatial |= {phrase for phrase, (slot, _) in entry_by_phrase.items() if slot == "place"}
        add(self.spatial, "place", "")
        self.phrases = entry_by_phrase
        self.longest = max(len(phrase.split()) for phrase in entry_by_phrase)

    def read(self, text: str) -> list[tuple[str, str, str]]:
        """Split a text into the longest known phrases and unknown words. Return (phrase, slot, concept) of each."""
        parts = re.findall(r"[\w&'-]+", text.lower())
        return [(phrase, *(entry or ("", ""))) for phrase, entry in split_phrases(parts, self.phrases, self.longest)]


class TextMeasures(NamedTuple):
    """Measures of a query. ``skeleton``: its text with slots, such as "<class>", in place of known phrases. The other
    fields count its words, its distinct clinical concepts, and its phrases on appearance and on place."""

    text: str
    skeleton: str
    words: int
    concepts: int
    morphology: int
    spatial: int


def measure_text(text: str, lexicon: Lexicon, concepts: int | None = None) -> TextMeasures:
    """Return the measures of a text. ``concepts``: number of its concepts by scispaCy, or None to count them here."""
    phrases = lexicon.read(text)
    distinct_concepts = {concept for _, _, concept in phrases if concept}
    distinct_concepts |= {phrase for phrase, _, concept in phrases if phrase in lexicon.morphology and not concept}
    skeleton = " ".join(f"<{slot}>" if slot in SLOTS[:4] else phrase for phrase, slot, _ in phrases)
    num_concepts = len(distinct_concepts) if concepts is None else concepts
    terms = {phrase for phrase, *_ in phrases if phrase in lexicon.morphology}
    spatial = sum(phrase in lexicon.spatial for phrase, *_ in phrases)
    return TextMeasures(text, skeleton, len(text.split()), num_concepts, len(terms), spatial)


def summarise(queries: Sequence[TextMeasures]) -> dict:
    """Return {column of :data:`LANGUAGE`: mean, percentage or count} of a group of queries."""
    count, words = len(queries), sum(query.words for query in queries)
    common = Counter(query.skeleton for query in queries)
    return {
        "queries": count,
        "words": words / count,
        "entity_density": sum(query.concepts for query in queries) / words,
        "morphology": 100 * sum(query.morphology > 0 for query in queries) / count,
        "morphology_terms": sum(query.morphology for query in queries) / count,
        "spatial": sum(query.spatial for query in queries) / count,
        "skeletons": len(common),
        "commonest": 100 * max(common.values()) / count,
        "distinct": 100 * len({query.text for query in queries}) / count,
    }


def run(
    *, lines: list[str], labels: list[str], sources: list[str], entities: list[str], language: str, words: str,
    source_names: list[str],
) -> None:  # fmt: skip
    """Write the tables ``language`` (measures of queries and of label baselines, whose texts are class names) and
    ``words`` (frequent words). ``lines`` and ``labels``: files of queries and of baselines. ``sources``: shards.
    ``entities``: [scispaCy's table of concept counts] or []."""
    concepts_by_query = dict(read_table(entities[0]).iter_rows()) if entities else {}
    facts = {name: Facts.read(paths[0]) for name, paths in paths_by_source(source_names, sources)}
    files = [(QUERIES, path) for path in lines]
    files += [(Path(path).parent.name.removeprefix("label_"), path) for path in labels]
    lexicons: dict[tuple[str, str], Lexicon] = {}
    groups: dict[tuple[str, str, str], list[TextMeasures]] = defaultdict(list)
    word_counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for kind, path in files:
        for line in read_lines(path):
            key = line["source"], line["domain"]
            lexicon = lexicons.setdefault(key, Lexicon(facts[key[0]], key[1]))
            measured = measure_text(line["query"], lexicon, concepts_by_query.get(line["query"]))
            for domain in (line["domain"], "total"):
                groups[kind, domain, Path(path).stem].append(measured)
            if kind == QUERIES:
                word_counts[line["domain"], Path(path).stem].update(set(re.findall(r"[a-z'-]+", line["query"].lower())))
    # queries before baselines, domains before the total
    order = sorted(groups, key=lambda key: (key[0] != QUERIES, key[0], key[1] == "total", key[1], key[2]))
    rows = (dict(zip(LANGUAGE, key, strict=False)) | summarise(groups[key]) for key in order)
    write_rows(language, rows, LANGUAGE)
    word_rows: list[tuple] = []
    for key, counts in sorted(word_counts.items()):
        word_rows += (
            (*key, *pair) for pair in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_WORDS]
        )
    write_rows(words, word_rows, WORDS)

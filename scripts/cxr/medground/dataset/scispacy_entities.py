"""Clinical concepts found by a user's spaCy pipeline, and linked by scispaCy's linker if the user has its files.

spaCy reads settings and weights of a pipeline folder and runs none of its code. Published linkers contain a pickle
(``tfidf_vectorizer.joblib``), which may run any code; files are read from the disk, never downloaded.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span

from cxr.base.columns import schema
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.tables import read_lines, write_table
from cxr.medground.dataset.entity_table import ENTITIES

KEY = "medground.dataset.scispacy"
LINKER = "scispacy_linker"
"""Factory of the linker; as a part of a pipeline it would download its files."""
LINKED = "kb_ents"
"""Extension attribute in which the linker stores an entity's [(concept, score)], best first."""
FILES = ("nmslib_index.bin", "tfidf_vectorizer.joblib", "tfidf_vectors_sparse.npz", "concept_aliases.json")
"""Files of a linker, besides the knowledge base ``*.jsonl``."""
REPLACED_SETTINGS = ("factory", "linker_name", "candidate_generator")
"""Settings of a linker that are replaced by its files."""


@dataclass(frozen=True)
class ScispacyOptions:
    """pipeline: folder that spaCy saved; linker: folder of a linker's files, or empty."""

    pipeline: str
    linker: str = ""


def load_pipeline(options: ScispacyOptions) -> Callable[[Iterable[str]], Iterator[set[str]]]:
    """Return a function that yields the distinct concepts of each text.

    With a linker, concepts are ids of its knowledge base, and unlinked entities are ignored. Without one, a concept is
    the entity's own id or lower-case text. Raises UserError for a folder that cannot be read.
    """
    if Span.has_extension(LINKED):  # another pipeline's
        Span.remove_extension(LINKED)
    folder = Path(options.pipeline)
    if not (folder / "config.cfg").is_file():
        raise UserError(f"{KEY}.pipeline: {folder} holds no config.cfg: give a folder to which spaCy saved a pipeline")
    try:
        components = spacy.util.load_config(folder / "config.cfg").get("components", {})
        linkers = {name: component for name, component in components.items() if component.get("factory") == LINKER}
        pipeline = spacy.load(folder, exclude=list(linkers))
    except (ValueError, OSError, KeyError, ImportError) as error:
        refuse_machine_fault(folder, error)
        first = " ".join(str(error).split())[:160]
        raise UserError(f"{KEY}.pipeline: {folder} cannot be read by spaCy ({first}): place one that it can") from None
    if linkers and not options.linker:
        raise UserError(
            f"{KEY}.pipeline: {folder} has the component {next(iter(linkers))!r}, whose files would be fetched: place "
            f"them in a folder and name it in {KEY}.linker"
        )
    link = _linker(options.linker, pipeline, next(iter(linkers.values()), {})) if options.linker else None
    linked = Span.has_extension(LINKED)

    def concepts(texts: Iterable[str]) -> Iterator[set[str]]:
        for doc in pipeline.pipe(texts):
            yield _linked_concepts(doc if link is None else link(doc)) if linked else _own_concepts(doc)

    return concepts


def run(*, lines: list[str], labels: list[str], model: list[str], entities: str, options: ScispacyOptions) -> None:
    """Write the number of concepts of every distinct text of the queries and of the label baselines.

    ``model``: files of the folders in ``options``, on which the table depends.
    """
    del model
    texts = sorted({line["query"] for path in (*lines, *labels) for line in read_lines(path)})
    counts = [len(concepts) for concepts in load_pipeline(options)(texts)]
    write_table(entities, pl.DataFrame({"query": texts, "concepts": counts}, schema=schema(ENTITIES)), ENTITIES)


def _linker(path: str, pipeline: Language, keys: dict) -> Callable[[Doc], Doc]:
    """Return scispaCy's linker with the files of a folder, and the settings that the pipeline has for it."""
    from scispacy.candidate_generation import CandidateGenerator, LinkerPaths
    from scispacy.linking import EntityLinker
    from scispacy.linking_utils import KnowledgeBase

    folder = Path(path)
    bases = sorted(folder.glob("*.jsonl"))
    missing = [name for name in FILES if not (folder / name).is_file()] + ["*.jsonl"] * (len(bases) != 1)
    if missing:
        raise UserError(f"{KEY}.linker: {path} lacks {', '.join(missing)}: place all files of one linker there")
    aliases, vectorizer, index = LinkerPaths.from_directory(folder).load()
    generator = CandidateGenerator(index, vectorizer, aliases, KnowledgeBase(str(bases[0])))
    settings = {name: value for name, value in keys.items() if name not in REPLACED_SETTINGS}
    return EntityLinker(pipeline, candidate_generator=generator, **settings)


def _linked_concepts(doc: Doc) -> set[str]:
    return {getattr(entity._, LINKED)[0][0] for entity in doc.ents if getattr(entity._, LINKED)}


def _own_concepts(doc: Doc) -> set[str]:
    return {entity.kb_id_ or entity.ent_id_ or entity.text.lower() for entity in doc.ents}

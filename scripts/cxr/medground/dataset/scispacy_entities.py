"""Clinical concepts in texts, found by a user's spaCy pipeline and, if the user has one, a linker of scispaCy. spaCy
reads settings and weights of a pipeline folder and runs none of its code. Published linkers contain a pickle
(``tfidf_vectorizer.joblib``), which may run any code. Nothing is downloaded."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cxr.base.columns import read_columns
from cxr.base.errors import UserError, refuse_unreadable
from cxr.base.tables import read_lines, write_rows

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

KEY = "medground.dataset.scispacy"
LINKER = "scispacy_linker"  # factory of the linker; as a part of a pipeline it would download its files
LINKED = "kb_ents"  # extension attribute in which the linker stores an entity's [(concept, score)], best first
FILES = ("nmslib_index.bin", "tfidf_vectorizer.joblib", "tfidf_vectors_sparse.npz", "concept_aliases.json")
"""Files in the folder of a linker, besides its knowledge base ``*.jsonl``."""
REPLACED_SETTINGS = ("factory", "linker_name", "candidate_generator")  # settings of a linker that its files replace
RESOURCE_FILES = ("columns/medground_dataset.toml",)
ENTITIES = read_columns("medground_dataset", "entities")


def load_pipeline(path: str, linker: str = "") -> Callable[[Iterable[str]], Iterator[set[str]]]:
    """Return a function that yields the set of concepts of each text. ``path``: folder that spaCy saved. ``linker``:
    folder of a linker's files, or "". With a linker, concepts are ids of its knowledge base, and unlinked entities are
    ignored. Without one, a concept is the entity's id or lower-case text. Raises UserError for an unreadable folder."""
    import spacy  # not at the top: the columns are read without spaCy
    from spacy.tokens import Span

    if Span.has_extension(LINKED):  # set by another pipeline
        Span.remove_extension(LINKED)
    folder = Path(path)
    if not (folder / "config.cfg").is_file():
        raise UserError(f"{KEY}.pipeline: {folder} has no config.cfg: give a folder to which spaCy saved a pipeline")
    problem = f"{KEY}.pipeline: {folder} cannot be read by spaCy"
    with refuse_unreadable(folder, problem, "give a pipeline of the installed spaCy version", KeyError, ImportError):
        components = spacy.util.load_config(folder / "config.cfg").get("components", {})
        linkers = {name: component for name, component in components.items() if component.get("factory") == LINKER}
        pipeline = spacy.load(folder, exclude=list(linkers))
    if linkers and not linker:
        problem = f"{folder} has the component {next(iter(linkers))!r}, whose files scispaCy would download"
        raise UserError(f"{KEY}.pipeline: {problem}: name a folder that has these files in {KEY}.linker")
    link = _linker(linker, pipeline, next(iter(linkers.values()), {})) if linker else lambda doc: doc
    linked = Span.has_extension(LINKED)

    def concepts(texts: Iterable[str]) -> Iterator[set[str]]:
        for entities in (link(doc).ents for doc in pipeline.pipe(texts)):
            if linked:
                yield {getattr(entity._, LINKED)[0][0] for entity in entities if getattr(entity._, LINKED)}
            else:
                yield {entity.kb_id_ or entity.ent_id_ or entity.text.lower() for entity in entities}

    return concepts


def run(
    *, lines: list[str], labels: list[str], model: list[str], entities: str, pipeline: str, linker: str = ""
) -> None:
    """Write the number of concepts of each distinct text in the files ``lines`` and ``labels`` to ``entities``.
    ``model``: the pipeline's files, whose change reruns this job. ``pipeline`` and ``linker``: folders."""
    del model
    texts = sorted({line["query"] for path in (*lines, *labels) for line in read_lines(path)})
    counts = [len(concepts) for concepts in load_pipeline(pipeline, linker)(texts)]
    write_rows(entities, zip(texts, counts, strict=True), ENTITIES)


def _linker(path: str, pipeline: "Language", keys: dict) -> Callable[["Doc"], "Doc"]:
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

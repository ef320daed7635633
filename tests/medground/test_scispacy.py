"""The engine scispacy on pipelines and a linker of the published formats, made here: no published one could be had."""

import json
import socket

import pytest

spacy = pytest.importorskip("spacy", reason="spaCy is not installed here: `make test-scispacy` installs and runs it")

from cxr.base.errors import UserError  # noqa: E402
from cxr.base.tables import read_table, write_lines  # noqa: E402
from cxr.medground.dataset import scispacy_entities  # noqa: E402
from cxr.medground.dataset.scispacy_entities import LINKER, load_pipeline  # noqa: E402

TEXTS = ["Find the round nucleus left of the nucleus.", "Mark the lung opacity.", "Mark the Nuclei.", "Where?"]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("something is fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def pipeline(tmp_path):
    """Return a function that saves a pipeline of a ruler and more components, and returns its folder."""

    def save(*more: str, ids: bool = False):
        made = spacy.blank("en")
        ruler = made.add_pipe("entity_ruler")
        words = {"nucleus": "C1", "nuclei": "C1", "opacity": "C2", "round": ""}
        ruler.add_patterns(
            [
                {"label": "ENTITY", "pattern": [{"LOWER": word}]} | ({"id": one} if ids and one else {})
                for word, one in words.items()
            ]
        )
        for name in more:
            made.add_pipe(name)
        made.to_disk(tmp_path / "pipeline")
        return tmp_path / "pipeline"

    return save


@spacy.Language.factory("concepts_of_ours")
def _concepts_of_ours(nlp, name):
    """What scispaCy's linker does to a text: it leaves the candidates of each entity, none of some."""
    spacy.tokens.Span.set_extension("kb_ents", default=[], force=True)
    known = {"nucleus": [("C1", 0.9), ("C9", 0.8)], "nuclei": [("C1", 0.8)], "opacity": [("C2", 1.0)]}

    def link(doc):
        for one in doc.ents:
            one._.kb_ents = known.get(one.text.lower(), [])
        return doc

    return link


def find_concepts(path, linker: str = "") -> list[set[str]]:
    return list(load_pipeline(str(path), str(linker))(TEXTS))


def test_without_a_linker_concepts_are_ids_or_texts(pipeline):
    assert find_concepts(pipeline()) == [{"round", "nucleus"}, {"opacity"}, {"nuclei"}, set()]
    assert find_concepts(pipeline(ids=True)) == [{"round", "C1"}, {"C2"}, {"C1"}, set()]


def test_with_a_linker_they_are_the_best_candidates_and_others_are_none(pipeline):
    assert find_concepts(pipeline("concepts_of_ours")) == [{"C1"}, {"C2"}, {"C1"}, set()]
    assert find_concepts(pipeline()) == [
        {"round", "nucleus"},
        {"opacity"},
        {"nuclei"},
        set(),
    ]  # the last one's is forgotten


def test_the_table_has_each_text_once(pipeline, tmp_path):
    paths = [tmp_path / name for name in ("train.jsonl", "test.jsonl", "label.jsonl")]
    for path, texts in zip(paths, (TEXTS, TEXTS[:2], ["nucleus"]), strict=True):
        write_lines(str(path), [{"query": text} for text in texts])
    lines, labels = [str(path) for path in paths[:2]], [str(paths[2])]
    scispacy_entities.run(
        lines=lines, labels=labels, model=[], entities=str(tmp_path / "e.parquet"), pipeline=str(pipeline())
    )  # fmt: skip
    rows = read_table(tmp_path / "e.parquet").rows()
    assert rows == sorted([*zip(TEXTS, (2, 1, 1, 0), strict=True), ("nucleus", 1)])


def fetching(pipeline):
    """Return a pipeline's folder whose settings name scispaCy's linker, as the published examples do."""
    path = pipeline()
    config = spacy.util.load_config(path / "config.cfg")
    config["nlp"]["pipeline"].append("linker")
    config["components"]["linker"] = {"factory": LINKER, "linker_name": "umls", "threshold": 0.99}
    config.to_disk(path / "config.cfg")
    return path


@pytest.fixture(scope="module")
def linker(tmp_path_factory):
    """The files of a linker as scispaCy publishes them, of a small knowledge base.

    Its own writer wants scipy < 1.11; it differs in that its vectors are of 16 bits.
    """
    pytest.importorskip("scispacy", reason="scispaCy is not installed here: `make test-scispacy` installs and runs it")
    import joblib
    import nmslib
    import numpy as np
    import scipy.sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    folder = tmp_path_factory.mktemp("linker")
    names = {"C1": ["nucleus", "cell nucleus", "nuclei"], "C2": ["opacity", "lung opacity"]}
    lines = [
        {"concept_id": one, "canonical_name": words[0], "aliases": words, "types": [], "definition": words[0]}
        for one, words in names.items()
    ]
    (folder / "kb.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    aliases = [word for words in names.values() for word in words]
    (folder / "concept_aliases.json").write_text(json.dumps(aliases))
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), dtype=np.float32)
    vectors = vectorizer.fit_transform(aliases)
    joblib.dump(vectorizer, folder / "tfidf_vectorizer.joblib")
    scipy.sparse.save_npz(folder / "tfidf_vectors_sparse.npz", vectors)
    index = nmslib.init(method="hnsw", space="cosinesimil_sparse", data_type=nmslib.DataType.SPARSE_VECTOR)
    index.addDataPointBatch(vectors)
    index.createIndex({"M": 16, "efConstruction": 50, "post": 0})
    index.saveIndex(str(folder / "nmslib_index.bin"))
    return folder


def test_scispacys_own_linker_reads_its_files_from_a_folder(pipeline, linker):
    assert find_concepts(pipeline(), linker) == [{"C1"}, {"C2"}, {"C1"}, set()]
    path = fetching(pipeline)
    assert find_concepts(path, linker) == [{"C1"}, {"C2"}, {"C1"}, set()]
    config = spacy.util.load_config(path / "config.cfg")
    config["components"]["linker"]["threshold"] = 1.5  # the pipeline's own settings of the linker are kept
    config.to_disk(path / "config.cfg")
    assert find_concepts(path, linker) == [set()] * 4


def test_what_cannot_be_read_is_one_sentence(pipeline, linker, tmp_path):
    with pytest.raises(UserError, match=r"pipeline: .*empty has no config.cfg: give a folder"):
        find_concepts(tmp_path / "empty")
    with pytest.raises(
        UserError, match=r"has the component 'linker', whose files scispaCy would download: name a folder that"
    ):
        find_concepts(fetching(pipeline))
    path = pipeline()
    (tmp_path / "some").mkdir()
    with pytest.raises(UserError, match=r"linker: .*some lacks nmslib_index.bin, .*, \*.jsonl: place all files"):
        find_concepts(path, tmp_path / "some")
    config = (path / "config.cfg").read_text()
    (path / "config.cfg").write_text(config.replace('factory = "entity_ruler"', 'factory = "unheard_of"'))
    with pytest.raises(UserError, match=r"pipeline: .* cannot be read by spaCy \(.*unheard_of.*\): give a") as error:
        find_concepts(path)
    assert "\n" not in str(error.value)
    (path / "config.cfg").write_text("[nlp\nx")
    with pytest.raises(UserError, match=r"cannot be read by spaCy"):
        find_concepts(path)

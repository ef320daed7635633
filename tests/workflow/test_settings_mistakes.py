"""Settings as people write them: what is natural is read, what is wrong is told in one sentence with a remedy."""

from pathlib import Path

import pytest
import yaml

from conftest import snakemake, write_settings
from cxr.base.errors import UserError
from cxr.base.settings import Section
from cxr.workflow import params, settings
from cxr.workflow.settings import Settings, SettingsError, document
from cxr.workflow.settings.changed_keys import read_changed_keys, values_at

MOVED, REMOVED, REPLACED = (read_changed_keys()[table] for table in ("moved", "removed", "replaced"))
GRID = {f"general.{tau}": [round(0.01 * n, 2) for n in range(1, 11)] for tau in ("ano", "anatomy", "conf", "signal")}


def over(base: dict, path: str, value: object) -> dict:
    """Return ``base`` with another value at a path of keys."""
    name, _, rest = path.partition(".")
    return base | {name: over(base.get(name) or {}, rest, value) if rest else value}


def refused(changes: dict) -> str:
    """Return the sentence that answers defaults with some keys changed."""
    config = Settings().as_dict()
    for path, value in changes.items():
        config = over(config, path, value)
    with pytest.raises(SettingsError) as caught:
        settings.read(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"cohort.shards": True}, "cohort.shards is true, which is wrong: give a number."),
        ({"boxes.floor": False}, "boxes.floor is false, which is wrong: give a number."),
        ({"frames.percentiles": [True, 99]}, "frames.percentiles, entry 1, is true, which is wrong: give a number."),
        (
            {"release.date": "2026-13-99"},
            "release.date: '2026-13-99' is not a calendar date: give one such as 2026-01-31.",
        ),
        (
            {"release.date": "2026-02-30"},
            "release.date: '2026-02-30' is not a calendar date: give one such as 2026-01-31.",
        ),
        (
            {"replicates": 1},
            "replicates: 1 replicates are too few: give 100 or more, or 0 for no interval.",
        ),
        (
            {"llm.server": "localhost:8000"},
            "llm.server: 'localhost:8000' is not the address of a server: give one such as http://localhost:8000/v1.",
        ),
        (
            {"llm.servers.google/medgemma": "http://host:port/v1"},
            "llm.servers.google/medgemma: 'http://host:port/v1' is not the address of a server: give one such as "
            "http://localhost:8000/v1.",
        ),
        (
            {"medground.queries.engine": "vllm"},
            "medground: queries.llm.model is empty, but queries.engine is vllm: give a model that takes images.",
        ),
        (
            {"medground.dataset.entities": "scispacy"},
            "medground.dataset: scispacy.pipeline is empty, but entities is scispacy: give the folder of a spaCy "
            "pipeline.",
        ),
        (
            {"medground.verification.judge": "vllm"},
            "medground: verification.llm.model is empty, but verification.judge is vllm: give a model that takes "
            "images.",
        ),
        (
            {"medground.queries.llm.form": "question_answer"},
            "medground: queries.llm.form is question_answer, so the model chooses regions: set "
            "queries.selection to model.",
        ),
        (
            {
                "medground.queries.engine": "vllm",
                "medground.queries.llm.model": "a/b",
                "medground.verification.judge": "vllm",
                "medground.verification.llm.model": "a/b",
            },
            "medground: verification.llm.model is 'a/b', which also writes the queries: give another model, or set "
            "verification.same_model to true.",
        ),
        (
            {"thresholds.sets.Half": {}},
            "thresholds: the sets 'half' and 'Half' differ only in case: rename one.",
        ),
        (
            {"training.runs.Mine": {}, "training.runs.mine": {}},
            "the configuration: training.runs and evaluation.predictions 'Mine' and 'mine' differ only in case: "
            "rename one.",
        ),
        (
            {"agreement.references": {"a": {"path": "x"}, "A": {"path": "y"}}},
            "agreement: the references 'a' and 'A' differ only in case: rename one.",
        ),
        (
            {"cohort.manifest": "mine.csv"},
            "cohort: manifest is given, but source is 'embedded': set cohort.source to manifest.",
        ),
        (
            {"cohort.root": "/data", "cohort.source": "manifest", "cohort.manifest": "mine.csv"},
            "cohort: root is given, but source is 'manifest': set cohort.source to mimic or openi.",
        ),
        ({"boxes.table": "b.csv"}, "boxes: table is given, but engine is 'lite': set boxes.engine to table."),
        (
            {"release.salt": "key"},
            "release: salt is given, but ids are published unchanged: add 'ids' to withhold, or remove it.",
        ),
        (
            {"dataset.mimic_ils_images": "there"},
            "dataset: mimic_ils_images is set, but dataset.mimic_ils is empty: give the folder of the release.",
        ),
        (
            {"thresholds.grid.general.ano": [0.1, 0.2, 0.1]},
            "thresholds.grid: general.ano lists 0.1 twice: remove one.",
        ),
        (
            {f"thresholds.grid.{name}": values for name, values in GRID.items()},
            "thresholds.grid: the grid has 10,000 points, more than max_points (100), and each shard's job tries them "
            "all (docs/reference/scale.md): list fewer values, or set max_points to 10000.",
        ),
        (
            {"frames.percentiles": 5},
            "frames.percentiles is 5, which is wrong: give a list in brackets; the default is [0.5, 99.5].",
        ),
        (
            {"frames.percentiles": [5]},
            "frames.percentiles has too few entries: entry 2 is missing; the default is [0.5, 99.5].",
        ),
        (
            {"cohort.modalities": "dx"},
            "cohort.modalities is 'dx', which is wrong: give a list in brackets, even of one entry; the default is "
            "['CR', 'DX', 'RG'].",
        ),
        (
            {"cohort.views": ["PA", "LL"]},
            "cohort.views, entry 2, is 'LL', which is wrong: choose 'PA' or 'AP'; the default is ['PA', 'AP'].",
        ),
        (
            {"training.lite.sizes.hidden": 112},
            "training: lite.sizes.hidden is 112, not 96 as in resources/rosalia: set lite.init to random.",
        ),
        (
            {"organs.lite.behind_heart": "maybe"},
            "organs.lite.behind_heart is 'maybe', which is wrong: give true or false; the default is true.",
        ),
        ({"organs": 5}, "organs is 5, which is wrong: write its keys below it, one per line."),
        ({"organs.engin": "lite"}, "organs.engin is not a setting (did you mean engine?): remove it or choose one of "),
        (
            {"thresholds.sets": {0.5: {}}},
            "thresholds.sets has the key '0.5', which is not a valid name: put it in quotes.",
        ),
        ({"inference.size": 100}, "inference.size is 100, which is wrong: give a multiple of 8; the default is 1024."),
        (
            {"review.experts": ["A B"]},
            "review.experts, entry 1, is 'A B', which is wrong: use letters, digits and - _ . alone, a letter or digit "
            "first (pattern ^[A-Za-z0-9][A-Za-z0-9_-]*$); the default is ['A', 'B', 'C', 'D'].",
        ),
    ],
)
def test_a_mistake_is_one_sentence_with_its_remedy(changes, sentence):
    told = refused(changes)
    assert told == sentence or (sentence.endswith(" ") and told.startswith(sentence))


def test_a_grid_that_is_confirmed_is_read():
    config = Settings().as_dict()
    for name, values in GRID.items():
        config = over(config, f"thresholds.grid.{name}", values[:4])
    config = over(config, "thresholds.grid.max_points", 256)
    assert len(settings.read(config).thresholds.grid_sets()) == 256


def leaves(section: Section, prefix: str = ""):
    """Yield the path of every setting."""
    for name in section.declared():
        value, path = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, Section):
            yield from leaves(value, f"{path}.")
        yield path


@pytest.mark.parametrize(
    "value",
    [
        "§",
        *(
            pytest.param(value, marks=pytest.mark.slow)
            for value in ({"x": {"y": []}}, True, -7, 3.25, 1e12, float("nan"), [], [1, "x", None, {}], {"x": 1}, None)
        ),
    ],
)
def test_no_answer_is_pydantics_own(value):
    config = Settings().as_dict()
    told = {}
    for path in leaves(Settings()):
        try:
            settings.read(over(config, path, value))
        except SettingsError as error:
            told[path] = str(error)
    assert len(told) > 20
    for path, sentence in told.items():
        assert "\n" not in sentence
        assert sentence.endswith("."), sentence
        assert path.split(".")[-1] in sentence or path.rsplit(".", 1)[0] in sentence, (path, sentence)
        for foreign in ("should be", "Input", "input", "Value error", "unable to parse", "pydantic"):
            assert foreign not in sentence, sentence


@pytest.mark.parametrize(
    ("text", "place", "wanted"),
    [
        ("release: {date: 2026-01-01}", "release.date", "2026-01-01"),
        ("release: {date: 2026-1-1}", "release.date", "2026-01-01"),
        ("release: {version: 1.0}", "release.version", "1.0.0"),
        ("release: {version: 1.10}", "release.version", "1.10.0"),
        ("release: {version: 2}", "release.version", "2.0.0"),
        ("release: {creator: NO}", "release.creator", "NO"),
        ("release: {name: 007}", "release.name", "007"),
        ("review: {experts: [1, 02, no]}", "review.experts", ["1", "02", "no"]),
        ("boxes: {engine: table, table: 0123}", "boxes.table", "0123"),
        ('{"release": {"version": 1.10}}', "release.version", "1.10.0"),
    ],
)
def test_a_text_that_yaml_takes_for_something_else_stays_what_was_written(tmp_path, text, place, wanted):
    (tmp_path / "mine.yaml").write_text(text)
    held = settings.read(yaml.safe_load(text), [tmp_path / "mine.yaml"])
    for part in place.split("."):
        held = getattr(held, part)
    assert held == wanted


def test_a_text_given_on_the_command_line_is_read_without_a_file():
    given = yaml.safe_load("{date: 2026-01-01, version: 1.5}")
    read = settings.read({"release": given}).release
    assert (read.date, read.version) == ("2026-01-01", "1.5.0")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "cohort: {source: embedded}\nseed: 1\ncohort: {shards: 2}\n",
            "cohort stands twice in mine.yaml, on lines 1 and 3, and only the last would count: merge them.",
        ),
        (
            "thresholds:\n  sets:\n    mine: {}\n    other: {}\n    mine: {}\n",
            "thresholds.sets.mine stands twice in mine.yaml, on lines 3 and 5, and only the last would count: "
            "merge them.",
        ),
        (
            '{"seed": 1, "seed": 2}',
            "seed stands twice in mine.yaml, on lines 1 and 1, and only the last would count: merge them.",
        ),
    ],
)
def test_a_key_given_twice_is_told_with_its_lines(tmp_path, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        settings.read({}, ["mine.yaml"])
    assert str(caught.value) == sentence


def test_the_same_key_in_two_files_is_an_override(tmp_path):
    for name, version in (("a", "1.10"), ("b", "1.20")):
        (tmp_path / f"{name}.yaml").write_text(f"release: {{version: {version}}}")
    read = settings.read({"release": {"version": 1.2}}, [tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert read.release.version == "1.20.0"


def test_a_file_that_snakemake_fills_in_is_left_to_it(tmp_path):
    (tmp_path / "mine.yaml").write_text("__use_yte__: true\n?if True:\n  seed: 1\n?if True:\n  seed: 2\n")
    assert settings.read({"seed": 2}, [tmp_path / "mine.yaml"]).seed == 2


@pytest.mark.parametrize(("size", "fits"), [(0, False), (3, False), (15, False), (16, True), (40, True)])
def test_a_key_that_can_be_guessed_is_refused_before_any_job(tmp_path, size, fits):
    key = tmp_path / "key"
    key.write_bytes(b"k" * size + b"\n")
    chosen = settings.read({"release": {"withhold": True, "salt": str(key)}})
    if fits:
        params.check_files(chosen, "")
        return
    with pytest.raises(
        UserError, match=rf"^release.salt: .* holds {size} bytes; fewer than 16 bytes can be guessed: make a longer key"
    ):
        params.check_files(chosen, "")


def test_the_page_of_settings_has_the_defaults():
    shown = {path: default.strip("`") for path, default, *_ in document.reference_rows() if default}
    config, compared = Settings().as_dict(), 0
    for path, text in shown.items():
        held = config
        for part in path.split("."):
            held = held.get(part) if isinstance(held, dict) else None
        if "<name>" not in path and not isinstance(held, dict):
            assert yaml.safe_load(text) == held, path
            compared += 1
    assert compared > 150


def test_the_workflow_reads_settings_as_written(tmp_path):
    """Through Snakemake's own reading: a date, a version; then a key that stands twice."""
    write_settings(tmp_path, {})
    (tmp_path / "mine.yaml").write_text("release: {date: 2026-01-01, version: 1.10}\n")
    done = snakemake(tmp_path, "release", "--dry-run", "--printshellcmds", check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "mine.yaml").write_text("release: {date: 2026-01-01}\nrelease: {version: 1.0}\n")
    done = snakemake(tmp_path, "release", "--dry-run", check=False)
    assert done.returncode == 1
    words = f"cxr-ils: release stands twice in {tmp_path / 'mine.yaml'}, on lines 1 and 2"
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "sentences"),
    [
        *((over({}, old, False), f"{old} is now {new}: rename it.") for old, new in MOVED.items()),
        (
            {
                "dataset": {"release_images": "", "dpi": 3, "release": ""},
                "training": {"runs": {"a": {"test": "release"}}},
            },
            "dataset.release is now dataset.mimic_ils: rename it. "
            "dataset.release_images is now dataset.mimic_ils_images: rename it. "
            "training.runs.a.test is 'release', a set that is now called 'mimic_ils': rename it.",
        ),
        (
            {"evaluation": {"predictions": {"b": {"test": "release"}}}, "training": {"runs": 1}},
            "evaluation.predictions.b.test is 'release', a set that is now called 'mimic_ils': rename it.",
        ),
        (
            {"agreement": {"references": {"own": {"format": "Release", "path": "x"}, "mine": {"path": "release"}}}},
            "agreement.references.own.format is 'Release', a format that is now called 'mimic_ils': rename it.",
        ),
    ],
)  # fmt: skip
def test_every_setting_that_has_moved_is_refused_at_once(config, sentences):
    with pytest.raises(settings.SettingsError) as caught:
        settings.read(config)
    assert str(caught.value) == sentences


def test_what_has_moved_is_there_under_its_new_name():
    known = settings.Settings().as_dict()
    for old, new in MOVED.items():
        assert not list(values_at(known, old))
        *there, _ = new.split(".")
        if there != ["compute", "batches"]:  # which holds the engines that have a number of their own
            assert list(values_at(known, new)), new


def test_every_setting_that_is_gone_is_refused_at_once_with_its_value_or_a_remedy():
    sentences = {
        f"{path} is no longer a setting, its value is always {value}: remove it." for path, value in REMOVED.items()
    }
    sentences |= {f"{path} is no longer a setting: {remedy}." for path, remedy in REPLACED.items()}
    config: dict = {}
    for path in (*REMOVED, *REPLACED):
        config = over(config, path.replace("*", "vlm"), 1)
    with pytest.raises(settings.SettingsError) as caught:
        settings.read(config)
    for sentence in sentences:
        key, _, remainder = sentence.partition(" ")
        assert f"{key.replace('*', 'vlm')} {remainder}" in str(caught.value)
    assert not [path for path in (*REMOVED, *REPLACED) if list(values_at(Settings().as_dict(), path))]

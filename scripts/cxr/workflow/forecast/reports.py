"""How many reports can be read, and how many state no finding, by a sample of them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from cxr.base.paths import RESOURCES
from cxr.language.reports import language, reading, vocabulary

RESOURCE_FILES = ("lexicon", "reading")


def share_readable(rows: Sequence[Mapping], options: Mapping) -> float:
    """Return the fraction of reports that can be read: those with words in a section that is used, in English.

    rows: rows of the cohort's shards, one a study; options: of the stage reports. The rules engine is not loaded; what
    it refuses besides is rare.
    """
    if not rows:
        return 0.0
    folder, words = (RESOURCES / name for name in RESOURCE_FILES)
    known_words = vocabulary.load_vocabulary(str(words), str(folder), misspellings=False)
    languages = language.load_languages(str(words / "languages.yaml"), known_words)
    reading_options = SimpleNamespace(**options)

    def is_readable(row: Mapping) -> bool:
        section = reading.read_section(dict(row), reading_options)
        if not isinstance(section, reading.Section):
            return False
        if options["engine"] == "rules" and language.detect_foreign(section.sentences, languages, known_words):
            return False
        return any(map(vocabulary.WORD.search, section.sentences))

    return sum(map(is_readable, rows)) / len(rows)


def share_without_finding(rows: Sequence[Mapping], options: Mapping, devices: str) -> float:
    """Return the fraction of readable reports that state no finding, as the healthy pool needs them.

    rows, options: as of :func:`share_readable`; devices: ``semisyn.healthy.devices``. The rules engine is loaded, which
    takes seconds.
    """
    from cxr.language.reports.read_reports import ReportsOptions, make_reader, study_line
    from cxr.semisyn.healthy.labels import ReportLabels

    reader = make_reader(ReportsOptions(**(dict(options) | {"engine": "rules"})))
    lines = [line for row in rows if isinstance(line := study_line(dict(row), reader), dict)]
    labels = ReportLabels(lines, {}, devices)
    healthy = sum(labels.exclusion_of({"study_id": line["study_id"], "image_id": ""}) is None for line in lines)
    return healthy / max(1, len(lines))

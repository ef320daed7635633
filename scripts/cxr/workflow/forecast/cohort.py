"""Forecast of a run's input: numbers of images, and of subjects, X-rays and readable reports in each split."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import polars as pl

from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table
from cxr.base.vocabulary import SPLITS
from cxr.imaging.cohort import manifest, mimic
from cxr.imaging.cohort.make_cohort import complete_row, list_rows, rank_in_study, usable_subjects
from cxr.imaging.cohort.rows import Row
from cxr.imaging.cohort.settings import CohortSettings
from cxr.imaging.cohort.split import subject_splits
from cxr.imaging.phantom.plan import healthy_plans, make_plan
from cxr.language.reports import language, reading, vocabulary

IMAGES = "results/cohort/images.parquet"
SAMPLE = 300
"""Number of images, and of reports, that are read for an estimate while the stages have not yet read all."""
THREADS = 8
"""Number of files that are opened at once, because a shared file system answers slowly."""
COLUMNS = dict.fromkeys(("image_id", "study_id", "subject_id", "view", "path", "report_path"), pl.String)
COLUMNS |= {"report_missing": pl.Boolean, "findings": pl.String, "impression": pl.String}


@dataclass(frozen=True)
class CohortForecast:
    """Size of a run's input, counted or estimated.

    num_images: images in the tables, including images that will be excluded. num_subjects: {split: subjects with
    an accepted image}. num_xrays: {split: images that become frames}. num_reports: {split: frames whose report can be
    read}. share_pa: fraction of the frames with the view PA. basis: text that names the source of the numbers.
    sample: table of some of the frames, one row each, with their reports.
    """

    num_images: int
    num_subjects: Mapping[str, int]
    num_xrays: Mapping[str, float]
    num_reports: Mapping[str, float]
    share_pa: float
    basis: str
    sample: pl.DataFrame


def forecast_cohort(
    source: str, options: Mapping[str, Mapping], shards: Sequence[str], remade: set[str], decoded: float
) -> CohortForecast:
    """Return the size of a run's input: counted from finished results, or estimated from the user's tables.

    source: the setting ``cohort.source``. options: {stage: its options}. remade: files that the run makes or rewrites.
    decoded: expected fraction of studies with a decodable image, among studies with an accepted image. Raises UserError
    if a table of the user cannot be read.
    """
    tables = [IMAGES, *(f"results/cohort/{shard}.parquet" for shard in shards)]
    if all(is_finished(path, remade) for path in tables):
        return _from_results(options, shards, remade, decoded)
    if source == "embedded":
        return _from_phantom(options["phantom"])
    return _from_tables(options, decoded)


def _from_results(options: Mapping, shards: Sequence[str], remade: set[str], decoded: float) -> CohortForecast:
    """Return the counts of a finished cohort, with estimates for the stages frames and reports if they are unfinished.
    ``decoded``: expected fraction of studies that get a frame, among studies with an accepted image."""
    num_images = pl.scan_parquet(IMAGES).select(pl.len()).collect().item()
    accepted = pl.concat([read_table(f"results/cohort/{shard}.parquet") for shard in shards])
    without_frame, unread = (_excluded(stage, shards, remade) for stage in ("frames", "reports"))
    if without_frame is None:
        xrays, factor = _of_studies(accepted, options["frames"]["per_study"]), decoded
    else:
        xrays, factor = accepted.join(without_frame, on="image_id", how="anti"), 1.0
    if unread is None:
        sample = _sample(xrays)
        share, basis = share_readable(sample.to_dicts(), options["reports"]), _basis("", sample, xrays)
        num_reports = _by_split(xrays, factor * share)
    else:
        sample = xrays.join(unread, on="image_id", how="anti")
        num_reports, basis = _by_split(sample), "the finished tables"
    return CohortForecast(
        num_images, _num_subjects(accepted), _by_split(xrays, factor), num_reports, _share_pa(xrays), basis, sample
    )


def _from_phantom(options: Mapping) -> CohortForecast:
    """Return the counts of the embedded synthetic cohort, whose images are planned before they are drawn."""
    plans = make_plan(options["seed"], options["subjects"], options["studies"])
    plans += healthy_plans(options["seed"], options["healthy"])
    rows = [
        {
            "subject_id": plan.subject_id,
            "split": plan.split,
            "view": plan.images[0].view,
            "has_report": not plan.report,
            "has_finding": bool(plan.findings),
        }
        for plan in plans
        if not plan.images[0].fault
    ]
    xrays = pl.DataFrame(rows)
    num_images = sum(len(plan.images) for plan in plans)
    num_reports = _by_split(xrays.filter("has_report"))
    basis = "the plan of the embedded synthetic cohort"
    return CohortForecast(
        num_images, _num_subjects(xrays), _by_split(xrays), num_reports, _share_pa(xrays), basis, xrays
    )


def _from_tables(options: Mapping, decoded: float) -> CohortForecast:
    """Return estimates from the user's tables and some studies' files. ``decoded``: as for :func:`forecast_cohort`."""
    values = dict(options["cohort"])
    seed = values.pop("seed")
    cohort = CohortSettings.from_dict(values)
    with _quiet(), ThreadPoolExecutor(THREADS) as pool:
        rows = list_rows(cohort, pool, check_files=False)
        candidates = [row for row in rows if row.reason is None]
        sampled = _sampled_studies(candidates)
        if cohort.source == "mimic":
            mimic.look_for_files(sampled, pool)
        elif cohort.source == "manifest":
            manifest.look_for_files(sampled, cohort.manifest, pool)
        list(pool.map(lambda row: complete_row(row, cohort), [row for row in sampled if row.reason is None]))
    accepted = [row for row in sampled if row.reason is None]
    is_whole = len(sampled) == len(candidates)
    splits = subject_splits(
        ((row.subject_id, row.split) for row in rows if row.reason != "bad_row"),
        cohort.split_shares(),
        seed,
        usable_subjects(accepted) if is_whole else None,
    )
    sample = _of_studies(_table(accepted, splits, cohort.views), options["frames"]["per_study"])
    listed = _table(accepted if is_whole else candidates, splits, cohort.views)
    if is_whole:
        num_xrays = _by_split(sample, decoded)
    else:
        share = len(sample) / len({row.study_id for row in sampled})
        num_xrays = _by_split(listed.unique("study_id"), share * decoded)
    readable = share_readable(sample.to_dicts(), options["reports"])
    num_reports = {split: number * readable for split, number in num_xrays.items()}
    basis = _basis(f"the headers of {len(sampled):,} of {len(rows):,} images", sample, listed.unique("study_id"))
    return CohortForecast(len(rows), _num_subjects(listed), num_xrays, num_reports, _share_pa(sample), basis, sample)


def _basis(headers: str, sample: pl.DataFrame, xrays: pl.DataFrame) -> str:
    return " and ".join(filter(None, [headers, f"{len(sample):,} of {len(xrays):,} reports"]))


def _table(rows: Sequence[Row], splits: Mapping[str, str], views: list[str]) -> pl.DataFrame:
    """Return a table of ``rows`` with the subject's split and, by the order of ``views``, the rank in the study."""
    rank = rank_in_study(rows, views)
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    columns |= {"split": [splits[row.subject_id] for row in rows], "rank": [rank[row.image_id] for row in rows]}
    return pl.DataFrame(columns, schema=COLUMNS | {"split": pl.String, "rank": pl.Int64})


def _of_studies(accepted: pl.DataFrame, per_study: str) -> pl.DataFrame:
    """Return the rows of the images to use: if ``per_study`` is "first", one image of each study, otherwise all."""
    return accepted.sort("study_id", "rank").unique("study_id", keep="first") if per_study == "first" else accepted


def _sampled_studies(rows: Sequence[Row]) -> list[Row]:
    """Return all rows of pseudo-randomly chosen studies, until there are at least :data:`SAMPLE` rows."""
    if len(rows) <= SAMPLE:
        return list(rows)
    by_study: dict[str, list[Row]] = {}
    for row in rows:
        by_study.setdefault(row.study_id, []).append(row)
    sampled: list[Row] = []
    for study_id in sorted(by_study, key=lambda study_id: stable_hash("sample", study_id)):
        if len(sampled) >= SAMPLE:
            break
        sampled += by_study[study_id]
    return sampled


def _sample(xrays: pl.DataFrame) -> pl.DataFrame:
    """Return at most :data:`SAMPLE` rows, chosen pseudo-randomly by a hash of the study's id."""
    order = sorted(range(len(xrays)), key=lambda place: stable_hash("sample", xrays["study_id"][place]))
    return xrays[sorted(order[:SAMPLE])]


def _excluded(stage: str, shards: Sequence[str], remade: set[str]) -> pl.DataFrame | None:
    """Return a table with the image_id of each image that a stage excluded, or None if the stage is not finished."""
    paths = [f"results/{stage}/{shard}.excluded.parquet" for shard in shards]
    if not all(is_finished(path, remade) for path in paths):
        return None
    return pl.concat([read_table(path).select("image_id") for path in paths]).unique()


def is_finished(path: str, remade: set[str]) -> bool:
    """Return whether a table exists and the run does not make it again. ``remade``: files that the run makes."""
    return path not in remade and Path(path).is_file() and Path(path).stat().st_size > 0


def _by_split(table: pl.DataFrame, factor: float = 1.0) -> dict[str, float]:
    counts = Counter(table["split"])
    return {split: counts[split] * factor for split in SPLITS}


def _num_subjects(table: pl.DataFrame) -> dict[str, int]:
    counts = Counter(table.select("subject_id", "split").unique()["split"])
    return {split: counts[split] for split in SPLITS}


def _share_pa(xrays: pl.DataFrame) -> float:
    return (xrays["view"] == "PA").mean() or 0.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about the user's tables, because the job that reads the tables will log them."""
    logger = logging.getLogger("cxr")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def share_readable(rows: Sequence[Mapping], options: Mapping) -> float:
    """Return the fraction of reports that can be read: English reports with words in a section that is used.

    rows: rows of the cohort, one per study. options: options of the stage ``reports``. The fraction is approximate,
    because the rules engine, which refuses a few more reports, is not loaded.
    """
    if not rows:
        return 0.0
    known_words = vocabulary.load_vocabulary(misspellings=False)
    languages = language.load_languages(known_words)
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
    """Return the fraction of readable reports that state no finding, so that SemiSynCXR may use their images.

    rows, options: see :func:`share_readable`. devices: the setting ``semisyn.healthy.devices``. The call takes seconds,
    because it loads the rules engine.
    """
    from cxr.language.reports.read_reports import ReportsOptions, make_reader, study_line
    from cxr.semisyn.healthy.labels import ReportLabels

    reader = make_reader(ReportsOptions(**(dict(options) | {"engine": "rules"})))
    lines = [line for row in rows if isinstance(line := study_line(dict(row), reader), dict)]
    labels = ReportLabels(lines, {}, devices)
    healthy = sum(labels.exclusion_of({"study_id": line["study_id"], "image_id": ""}) is None for line in lines)
    return healthy / max(1, len(lines))


def share_handed_over(rows: Sequence[Mapping], options: Mapping) -> float:
    """Return the fraction of reports that the rules engine passes on to a language model.
    rows, options: see :func:`share_readable`. The call takes seconds, because it loads the rules engine."""
    from cxr.language.reports.read_reports import ReportsOptions, find_hand_over, make_reader

    reader = make_reader(ReportsOptions(**(dict(options) | {"engine": "rules"})))
    return sum(find_hand_over(dict(row), reader) is not None for row in rows) / len(rows)

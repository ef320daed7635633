"""Reading the chest X-rays of Indiana University (Open-i of the NLM): reports in XML, images as PNG or DICOM.

An XML file is the report of one study of one patient. It names its images but not their views, which come from tables.
Kaggle's ``indiana_projections.csv`` takes precedence: people classified every image. The two tables of torchxrayvision
hold the DICOM headers, and a view from clustering the first image of each report. Most headers of lateral images also
say PA ("Xray Chest PA and Lateral"), so a header's PA counts only if the study has no better candidate.
"""

import os
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.faults import broken_part
from cxr.base.jobs import log
from cxr.base.user_tables import read_frame, require_columns
from cxr.imaging.cohort import openi_files
from cxr.imaging.cohort.openi_files import Name, parse_name
from cxr.imaging.cohort.rows import Row, in_batches
from cxr.imaging.cohort.view import OTHER, parse_view_code, parse_view_orientation, parse_view_text

UNSETTLED = "?"
"""View of an image that no table calls lateral in a study with a frontal one; most are lateral
(docs/getting-started/openi.md)."""
SEEN_VIEWS = {"PA": "PA", "L": OTHER}
"""Labels of frontal and lateral views in the table of clusters."""


@dataclass(frozen=True)
class Tables:
    """Contents of the tables by image key: ``projections`` frontal or lateral, ``headers`` and ``seen`` a view."""

    projections: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)


def _cells(path: Path, kind: str) -> Iterable[tuple[str, ...]]:
    """Yield (key, the other cells) of each row that names an image. Raises UserError for another table."""
    columns = openi_files.TABLE_COLUMNS[kind]
    table = read_frame(path, "cohort.tables", columns, ids=columns[:1], words=columns[:1])
    require_columns(table.columns, columns, path, "cohort.tables", "get it again")
    for image, *cells in table.select(columns).iter_rows():
        name = parse_name(image)
        if name:
            yield name.key, *(cell.strip() for cell in cells)


def _header_view(position: str, orientation: str) -> str:
    rows = orientation.strip("[]'\" ")  # written as a list: ['A', 'F']
    return parse_view_orientation(rows) or parse_view_code(position) or ""


def read_tables(paths: dict[str, Path]) -> Tables:
    """Read the available tables (:func:`cxr.imaging.cohort.openi_files.view_tables`). Raises UserError."""
    rows_by_kind = {kind: _cells(path, kind) for kind, path in paths.items()}
    return Tables(
        projections={key: projection.lower() for key, projection in rows_by_kind.get(openi_files.PROJECTIONS, ())},
        headers={key: _header_view(*cells) for key, *cells in rows_by_kind.get(openi_files.HEADERS, ())},
        seen={key: SEEN_VIEWS.get(view, "") for key, view in rows_by_kind.get(openi_files.CLUSTERS, ())},
    )


def _study_views(keys: Sequence[str], tables: Tables) -> dict[str, str]:
    """Return {key: view} of one study by torchxrayvision's tables, "" where they have no entry.

    An image is lateral if a header or the clusters call it so. It is frontal if the clusters call it so. If they call
    none frontal, the frontal image is the only one that is not lateral, or else those that a header calls PA or AP. In
    a study with a frontal image, the remaining images are UNSETTLED.
    """
    header_views = {key: tables.headers.get(key) or "" for key in keys}
    views = {key: OTHER if header_views[key] == OTHER else tables.seen.get(key) or "" for key in keys}
    unclassified_keys = [key for key in keys if not views[key]]
    if "PA" not in views.values():
        listed_keys = [key for key in unclassified_keys if key in tables.headers or key in tables.seen]
        frontal = (
            listed_keys if len(listed_keys) == 1 else [key for key in listed_keys if header_views[key] in ("PA", "AP")]
        )
        views |= dict.fromkeys(frontal, "PA")
    if "PA" in views.values():
        views |= {key: UNSETTLED for key in unclassified_keys if not views[key]}
    return {key: "AP" if view == "PA" and header_views[key] == "AP" else view for key, view in views.items()}


def _projected(projection: str, caption: str, header: str) -> str:
    if projection == "lateral":
        return OTHER
    if projection != "frontal":
        return ""
    return "AP" if "AP" in (header, parse_view_text(caption)) else "PA"


def settle_views(studies: Iterable[Sequence[tuple[str, str]]], tables: Tables) -> dict[str, str]:
    """Return {image id: PA, AP, OTHER, UNSETTLED, or "" if unknown} of studies of (image id, caption)."""
    views: dict[str, str] = {}
    for images in studies:
        keys = {image: name.key for image, _ in images if (name := parse_name(image))}
        settled = _study_views(list(keys.values()), tables)
        for image, caption in images:
            key = keys.get(image, "")
            header = tables.headers.get(key, "")
            views[image] = _projected(tables.projections.get(key, ""), caption, header) or settled.get(key, "")
    return views


@dataclass(frozen=True, slots=True)
class Report:
    """One XML file: its id (``CXR1``), its texts, and (id, caption) of its images; ``fault`` if it cannot be read."""

    uid: str
    findings: str = ""
    impression: str = ""
    images: tuple[tuple[str, str], ...] = ()
    fault: str = ""


def read_report(path: str | Path) -> Report:
    """Read a report. An unreadable one is returned with its ``fault`` and the id in its file name."""
    fallback = f"CXR{Path(path).stem.removeprefix('CXR')}"
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as error:
        line, column = error.position
        return Report(fallback, fault=f"the XML breaks at line {line}, column {column}")
    except OSError as error:
        if broken_part(error):
            raise
        return Report(fallback, fault=f"the XML cannot be read ({error.strerror})")
    id_element = root.find("uId")
    if root.tag != "eCitation" or id_element is None or not id_element.get("id"):
        return Report(fallback, fault="the XML is no report of this collection (no eCitation with uId)")
    texts: dict[str, str] = defaultdict(str)
    for part in root.iter("AbstractText"):
        texts[(part.get("Label") or "").upper()] += "".join(part.itertext())
    images = tuple((image.get("id") or "", image.findtext("caption") or "") for image in root.iter("parentImage"))
    return Report(id_element.get("id") or "", texts["FINDINGS"].strip(), texts["IMPRESSION"].strip(), images)


def _files(root: str) -> dict[str, tuple[Name, str]]:
    file_by_key: dict[str, tuple[Name, str]] = {}
    for name, path in openi_files.image_files(root):
        previous = file_by_key.get(name.key)
        if previous is None or openi_files.ENDINGS.index(name.ending) < openi_files.ENDINGS.index(previous[0].ending):
            file_by_key[name.key] = (name, os.path.normpath(path))
    return file_by_key


def _report_rows(report: Report, files: dict[str, tuple[Name, str]], of_report: dict[str, list[str]]) -> Iterator[Row]:
    ids = [image for image, _ in report.images]
    if report.fault:
        ids = [f"CXR{key}" for key in of_report.get(report.uid.removeprefix("CXR"), [])] or [report.uid]
    for image in ids:
        name = parse_name(image)
        _, path = files.get(name.key if name else "", (None, ""))
        row = Row(image, report.uid, report.uid, path, findings=report.findings, impression=report.impression)
        if report.fault:
            row.exclude("bad_row", report.fault)
        elif not path:
            row.exclude("missing_file")
        yield row


def _unreported_rows(files: dict[str, tuple[Name, str]], rows: Iterable[Row]) -> Iterator[Row]:
    reported_keys = {name.key for name in (parse_name(row.image_id) for row in rows) if name}
    for key in sorted(files.keys() - reported_keys):
        name, path = files[key]
        row = Row(f"CXR{key}", f"CXR{name.report}", f"CXR{name.report}", path)
        row.exclude("bad_row", "no report of the collection names this image")
        yield row


def read_openi(root: str, tables: str, pool: Executor) -> list[Row]:
    """Read the collection: one :class:`Row` per image that a report names, and per image file that no report names.

    Each report is one subject and one study. Raises UserError if there are no reports or a table cannot be used.
    """
    paths = sorted(openi_files.reports_folder(root).glob("*.xml"))
    reports = list(in_batches(pool, read_report, [str(path) for path in paths]))
    files = _files(root)
    of_report: dict[str, list[str]] = defaultdict(list)
    for key, (name, _) in files.items():
        of_report[name.report].append(key)
    rows = [row for report in reports for row in _report_rows(report, files, of_report)]
    if not rows:
        raise UserError(f"cohort.root: no report below {root!r} names an image: unpack NLMCXR_reports.tgz again")
    rows += list(_unreported_rows(files, rows))
    views = settle_views([report.images for report in reports], read_tables(openi_files.view_tables(root, tables)))
    for row in rows:
        view = views.get(row.image_id, "")
        row.view = "" if view == UNSETTLED else view
        if view == UNSETTLED:
            row.exclude("unknown_view", "no table settles the view, and another image of the report is frontal")
    log.info(
        "openi: %d reports, of which %d name no image and %d cannot be read; %d images, %d of them frontal by a table",
        len(reports),
        sum(not report.images and not report.fault for report in reports),
        sum(bool(report.fault) for report in reports),
        len(rows),
        sum(row.view in ("PA", "AP") for row in rows),
    )
    return rows

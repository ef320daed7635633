"""Reading a cohort from the Indiana University collection (Open-i): reports from XML, views of images from tables.

Kaggle's ``indiana_projections.csv`` takes precedence, because people classified every image. torchxrayvision's tables
hold header fields and views from clustering. Most lateral images have PA in the header, so PA is trusted least.
"""

import os
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cxr.base.errors import UserError
from cxr.base.faults import broken_part
from cxr.base.jobs import log
from cxr.base.user_tables import read_frame, require_columns
from cxr.imaging.cohort import openi_files
from cxr.imaging.cohort.openi_files import Name, parse_name
from cxr.imaging.cohort.rows import Row, in_batches
from cxr.imaging.cohort.view import OTHER, parse_view_code, parse_view_orientation, parse_view_text

UNSETTLED = "?"  # view of an unclassified image whose study has a frontal image: it is mostly lateral (openi.md)
SEEN_VIEWS = {"PA": "PA", "L": OTHER}  # labels of frontal and lateral views in the table of clusters


class Tables(NamedTuple):
    """Tables {image key: view}. ``projections`` gives frontal or lateral, both others PA, AP, OTHER or "" (unknown)."""

    projections: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    clustered: Mapping[str, str] = MappingProxyType({})


def _cells(path: Path, kind: str) -> Iterable[tuple[str, ...]]:
    """Yield (image key, *other cells) for each row with an image name. Raises UserError if a column is missing."""
    columns = openi_files.TABLE_COLUMNS[kind]
    table = read_frame(path, "cohort.tables", columns, ids=columns[:1], words=columns[:1])
    require_columns(table.columns, columns, path, "cohort.tables", "get it again")
    for image, *cells in table.select(columns).iter_rows():
        name = parse_name(image)
        if name:
            yield name.key, *(cell.strip() for cell in cells)


def read_tables(paths: dict[str, Path]) -> Tables:
    """Read the tables of :func:`cxr.imaging.cohort.openi_files.view_tables`. Raises UserError if one lacks a column."""
    rows_by_kind = {kind: _cells(path, kind) for kind, path in paths.items()}
    headers = {
        # the orientation is written as a list: ['A', 'F']
        key: parse_view_orientation(orientation.strip("[]'\" ")) or parse_view_code(position) or ""
        for key, position, orientation in rows_by_kind.get(openi_files.HEADERS, ())
    }
    return Tables(
        projections={key: projection.lower() for key, projection in rows_by_kind.get(openi_files.PROJECTIONS, ())},
        headers=headers,
        clustered={key: SEEN_VIEWS.get(view, "") for key, view in rows_by_kind.get(openi_files.CLUSTERS, ())},
    )


def _study_views(keys: Sequence[str], tables: Tables) -> dict[str, str]:
    """Return {key: view} for the images of one study by torchxrayvision's tables, "" for images without an entry.

    An image is lateral if its header or its cluster says lateral. Otherwise it is frontal if its cluster says frontal.
    If no cluster says frontal and only one image is not lateral, this image is frontal. If several are not lateral,
    those with PA or AP in the header are frontal. In a study with a frontal image, undecided images are UNSETTLED.
    """
    header_views = {key: tables.headers.get(key) or "" for key in keys}
    views = {key: OTHER if header_views[key] == OTHER else tables.clustered.get(key) or "" for key in keys}
    if "PA" not in views.values():
        frontal = [key for key in keys if not views[key] and (key in tables.headers or key in tables.clustered)]
        if len(frontal) > 1:
            frontal = [key for key in frontal if header_views[key] in ("PA", "AP")]
        views |= dict.fromkeys(frontal, "PA")
    if "PA" in views.values():
        views |= {key: UNSETTLED for key in keys if not views[key]}
    return {key: "AP" if view == "PA" and header_views[key] == "AP" else view for key, view in views.items()}


def settle_views(studies: Iterable[Sequence[tuple[str, str]]], tables: Tables) -> dict[str, str]:
    """Return {image id: PA, AP, OTHER, UNSETTLED, or "" if unknown}. Each study is a list of (image id, caption)."""
    views: dict[str, str] = {}
    for images in studies:
        keys = {image: name.key for image, _ in images if (name := parse_name(image))}
        settled = _study_views(list(keys.values()), tables)
        for image, caption in images:
            key = keys.get(image, "")
            projection = tables.projections.get(key)
            views[image] = OTHER if projection == "lateral" else settled.get(key, "")
            if projection == "frontal":
                views[image] = "AP" if "AP" in (tables.headers.get(key), parse_view_text(caption)) else "PA"
    return views


class Report(NamedTuple):
    """The report in an XML file. ``uid``: such as CXR1; ``images``: (id, caption); ``fault``: why it is unreadable."""

    uid: str
    findings: str = ""
    impression: str = ""
    images: tuple[tuple[str, str], ...] = ()
    fault: str = ""


def read_report(path: str | Path) -> Report:
    """Read a report from an XML file. An unreadable report gets a ``fault``, and a ``uid`` from the file name."""
    fallback = f"CXR{Path(path).stem.removeprefix('CXR')}"
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as error:
        line, column = error.position
        return Report(fallback, fault=f"the XML is malformed at line {line}, column {column}")
    except OSError as error:
        if broken_part(error):
            raise
        return Report(fallback, fault=f"the XML cannot be read ({error.strerror})")
    id_element = root.find("uId")
    if root.tag != "eCitation" or id_element is None or not id_element.get("id"):
        return Report(fallback, fault="the XML is not a report of this collection (it has no eCitation with uId)")
    texts: dict[str, str] = defaultdict(str)
    for part in root.iter("AbstractText"):
        texts[(part.get("Label") or "").upper()] += "".join(part.itertext())
    images = tuple((image.get("id") or "", image.findtext("caption") or "") for image in root.iter("parentImage"))
    return Report(id_element.get("id") or "", texts["FINDINGS"].strip(), texts["IMPRESSION"].strip(), images)


def _report_rows(report: Report, files: dict[str, tuple[Name, str]]) -> Iterator[Row]:
    ids = [image for image, _ in report.images]
    if report.fault:  # the images are those whose file names contain the report's number
        number = report.uid.removeprefix("CXR")
        ids = [f"CXR{key}" for key, (name, _) in files.items() if name.report == number] or [report.uid]
    for image in ids:
        name = parse_name(image)
        _, path = files.get(name.key if name else "", (None, ""))
        row = Row(image, report.uid, report.uid, path, findings=report.findings, impression=report.impression)
        if report.fault:
            row.exclude("bad_row", report.fault)
        elif not path:
            row.exclude("missing_file")
        yield row


def read_openi(root: str, tables: str, pool: Executor) -> list[Row]:
    """Read the collection; return a :class:`Row` per image in a report, and per image file that no report lists.

    Each report is one subject and one study. Raises UserError if there are no reports or a table lacks a column.
    """
    paths = sorted(openi_files.reports_folder(root).glob("*.xml"))
    reports = list(in_batches(pool, read_report, [str(path) for path in paths]))
    files: dict[str, tuple[Name, str]] = {}
    for name, path in sorted(openi_files.image_files(root), key=lambda file: openi_files.ENDINGS.index(file[0].ending)):
        files.setdefault(name.key, (name, os.path.normpath(path)))  # of several files of an image, the first by ENDINGS
    rows = [row for report in reports for row in _report_rows(report, files)]
    if not rows:
        raise UserError(f"cohort.root: no report below {root!r} names an image: unpack NLMCXR_reports.tgz again")
    for key in sorted(files.keys() - {name.key for row in rows if (name := parse_name(row.image_id))}):
        name, path = files[key]
        rows.append(Row(f"CXR{key}", f"CXR{name.report}", f"CXR{name.report}", path))
        rows[-1].exclude("bad_row", "no report of the collection names this image")
    views = settle_views([report.images for report in reports], read_tables(openi_files.view_tables(root, tables)))
    for row in rows:
        view = views.get(row.image_id, "")
        row.view = "" if view == UNSETTLED else view
        if view == UNSETTLED:
            row.exclude("unknown_view", "no table gives the view, and another image of the report is frontal")
    num_empty = sum(not report.images and not report.fault for report in reports)
    num_faulty = sum(bool(report.fault) for report in reports)
    num_frontal = sum(row.view in ("PA", "AP") for row in rows)
    counts = len(reports), num_empty, num_faulty, len(rows), num_frontal
    log.info("openi: %d reports, %d without an image, %d unreadable; %d images, %d frontal by a table", *counts)
    return rows

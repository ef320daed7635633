"""Reading the chest X-rays of Indiana University (Open-i of the NLM): reports in XML, images as PNG or DICOM.

An XML file is the report of one study of one patient. It names its images but not their views, which come from tables
(:mod:`cxr.imaging.cohort.openi_views`).
"""

import os
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.faults import broken_part
from cxr.base.jobs import log
from cxr.imaging.cohort.batches import in_batches
from cxr.imaging.cohort.openi_files import ENDINGS, Name, image_files, parse_name, reports_folder, view_tables
from cxr.imaging.cohort.openi_views import UNSETTLED, read_tables, settle_views
from cxr.imaging.cohort.rows import Row


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
    """Return {key: (name, path)} of the image files; of several files of one image, the best one."""
    file_by_key: dict[str, tuple[Name, str]] = {}
    for name, path in image_files(root):
        previous = file_by_key.get(name.key)
        if previous is None or ENDINGS.index(name.ending) < ENDINGS.index(previous[0].ending):
            file_by_key[name.key] = (name, os.path.normpath(path))
    return file_by_key


def _report_rows(report: Report, files: dict[str, tuple[Name, str]], of_report: dict[str, list[str]]) -> Iterator[Row]:
    """Yield the rows of a report's images; for an unreadable report, those of the files named after it."""
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
    """Yield a row for each image file that no report names."""
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
    paths = sorted(reports_folder(root).glob("*.xml"))
    reports = list(in_batches(pool, read_report, [str(path) for path in paths]))
    files = _files(root)
    of_report: dict[str, list[str]] = defaultdict(list)
    for key, (name, _) in files.items():
        of_report[name.report].append(key)
    rows = [row for report in reports for row in _report_rows(report, files, of_report)]
    if not rows:
        raise UserError(f"cohort.root: no report below {root!r} names an image: unpack NLMCXR_reports.tgz again")
    rows += list(_unreported_rows(files, rows))
    views = settle_views([report.images for report in reports], read_tables(view_tables(root, tables)))
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

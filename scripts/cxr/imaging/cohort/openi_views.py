"""Finding the frontal images of the Indiana University collection from tables, because the XML lacks the view.

Kaggle's ``indiana_projections.csv`` takes precedence: people classified every image. The two tables of torchxrayvision
hold the DICOM headers, and a view from clustering the first image of each report. Most headers of lateral images also
say PA ("Xray Chest PA and Lateral"), so a header's PA counts only if the study has no better candidate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cxr.base.user_tables import read_frame, require_columns
from cxr.imaging.cohort.openi_files import CLUSTERS, HEADERS, PROJECTIONS, TABLE_COLUMNS, parse_name
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
    columns = TABLE_COLUMNS[kind]
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
        projections={key: projection.lower() for key, projection in rows_by_kind.get(PROJECTIONS, ())},
        headers={key: _header_view(*cells) for key, *cells in rows_by_kind.get(HEADERS, ())},
        seen={key: SEEN_VIEWS.get(view, "") for key, view in rows_by_kind.get(CLUSTERS, ())},
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

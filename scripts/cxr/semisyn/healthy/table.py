"""Classifier table: scores of any net from a file, one row per image, one column per finding."""

import math
from pathlib import Path

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.user_tables import fold_name, read_frame, require_columns
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.healthy.criteria import Exclusion
from cxr.semisyn.healthy.engine import Classifier, NoScores, ReadFrame
from cxr.semisyn.healthy.settings import HealthySettings

FILES = ("scores",)
KEY = "semisyn.healthy.table.scores"


class TableClassifier(Classifier):
    """Scores looked up by image_id. A finding without a column is not screened."""

    def __init__(self, path: str | Path, threshold: float):
        table = read_frame(path, KEY, ("image_id", *FINDINGS), ids=("image_id",))
        finding_by_name = {fold_name(name): finding for finding, label in FINDINGS.items() for name in (finding, label)}
        column_by_finding = {
            finding_by_name[fold_name(name)]: name for name in table.columns if fold_name(name) in finding_by_name
        }
        require_columns(table.columns, ("image_id",), path, KEY)
        if not column_by_finding:
            raise UserError(f"{KEY}: {path} has no column of a finding: add one of {', '.join(FINDINGS)}")
        self.findings = tuple(finding for finding in FINDINGS if finding in column_by_finding)
        self.thresholds = dict.fromkeys(self.findings, threshold)
        self.rows: dict[str, list[tuple[str, ...]]] = {}
        columns = [column_by_finding[finding] for finding in self.findings]
        for image, *cells in table.select("image_id", *columns).iter_rows():
            self.rows.setdefault(image, []).append(tuple(cells))

    def scores(self, image_id: str, picture: ReadFrame) -> dict[str, float]:
        """See :class:`cxr.semisyn.healthy.engine.Classifier`."""
        rows = {tuple(map(_number, cells)) for cells in self.rows.get(image_id, ())}
        if not rows:
            raise NoScores(Exclusion("not_labelled", "the table of scores has no row of it"))
        if len(rows) > 1:
            raise NoScores(Exclusion("not_labelled", "rows of the table of scores contradict each other"))
        (values,) = rows
        if None in values:
            raise NoScores(Exclusion("not_labelled", "a score is no number from 0 to 1"))
        return dict(zip(self.findings, values, strict=True))


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None


def load(options: HealthySettings, setup: Setup) -> TableClassifier:
    """Read the table. Raises UserError if it cannot be used."""
    return TableClassifier(setup.files["scores"], options.threshold)

"""Classifier ``table``: reads the scores of any net from a file with a row per image and a column per finding."""

from pathlib import Path

import polars as pl

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.user_tables import fold_name, read_frame, require_columns
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.healthy.engine import Classifier, Exclusion, ReadFrame
from cxr.semisyn.healthy.settings import HealthySettings

FILES = ("scores",)
KEY = "semisyn.healthy.table.scores"


class TableClassifier(Classifier):
    """Classifier that looks up scores by image_id. Findings without a column are not checked."""

    def __init__(self, path: str | Path, threshold: float):
        table = read_frame(path, KEY, ("image_id", *FINDINGS), ids=("image_id",))
        finding_by_name = {fold_name(name): finding for finding, label in FINDINGS.items() for name in (finding, label)}
        column_by_finding = {finding_by_name.get(fold_name(name)): name for name in table.columns}
        require_columns(table.columns, ("image_id",), path, KEY)
        self.findings = tuple(finding for finding in FINDINGS if finding in column_by_finding)
        if not self.findings:
            raise UserError(f"{KEY}: {path} has no column of any finding: add one of {', '.join(FINDINGS)}")
        self.thresholds = dict.fromkeys(self.findings, threshold)
        self.rows: dict[str, set[tuple[float | None, ...]]] = {}
        names = [column_by_finding[finding] for finding in self.findings]
        numbers = [pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in names]
        scores = [pl.when(number.is_between(0, 1)).then(number).alias(str(at)) for at, number in enumerate(numbers)]
        for image, *cells in table.select("image_id", *scores).iter_rows():
            self.rows.setdefault(image, set()).add(tuple(cells))

    def scores(self, image_id: str, read_frame: ReadFrame) -> dict[str, float] | Exclusion:
        """See :class:`cxr.semisyn.healthy.engine.Classifier`."""
        rows = self.rows.get(image_id)
        if not rows:
            return Exclusion("not_labelled", "the table of scores has no row of the image")
        if len(rows) > 1:
            return Exclusion("not_labelled", "rows of the table of scores contradict each other")
        (values,) = rows
        if None in values:
            return Exclusion("not_labelled", "a score is not a number from 0 to 1")
        return dict(zip(self.findings, values, strict=True))


def load(options: HealthySettings, setup: Setup) -> TableClassifier:
    """Read the table of scores. Raise UserError if it lacks image_id or has no column of any finding."""
    return TableClassifier(setup.files["scores"], options.threshold)

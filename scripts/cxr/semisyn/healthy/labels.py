"""Decide whether a study has a finding or a device, by a table of CheXpert labels or by the reports stage."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import polars as pl

from cxr.base.resources import load_resource
from cxr.base.user_tables import read_frame, require_columns
from cxr.language.reports.devices import Devices, compile_devices, normalize_words, phrase_pattern
from cxr.semisyn.healthy.engine import Exclusion

RESOURCE_FILES = ("semisyn/devices.yaml",)
NO_FINDING, DEVICES = "No Finding", "Support Devices"
KEY = "semisyn.healthy.chexpert"
POSITIVE, NEGATIVE = 1.0, 0.0


def exclusion_reason(no_finding: pl.Expr, devices: pl.Expr, rule: str) -> pl.Expr:
    """Return a polars expression: the code of the reason why a study is not healthy, null for a healthy study. Labels
    are 1 (stated), 0 (denied) or null (not mentioned). ``rule``: device labels of a healthy study, ``not_positive``
    (the authors' code), ``negative`` (the paper) or ``any``."""
    free = {
        "not_positive": (devices != POSITIVE).fill_null(True),
        "negative": (devices == NEGATIVE).fill_null(False),
        "any": pl.lit(True),
    }[rule]
    healthy = (no_finding == POSITIVE).fill_null(False)
    reason = pl.when(~healthy).then(pl.lit("has_finding")).when(~free).then(pl.lit("has_device"))
    return reason.otherwise(pl.lit(None, pl.String))


class TableLabels:
    """CheXpert labels in a CSV, by image_id, study_id (as in MIMIC-CXR-JPG) or Path (as in CheXpert)."""

    name = "chexpert"

    def __init__(self, path: str | Path, devices: str):
        keys = ("image_id", "study_id", "Path")
        table = read_frame(path, KEY, (*keys, NO_FINDING, DEVICES), ids=keys)
        key = next((name for name in keys if name in table.columns), "study_id")
        require_columns(table.columns, (key, NO_FINDING, DEVICES), path, KEY, "give a table of CheXpert labels")
        label = {name: pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in (NO_FINDING, DEVICES)}
        reason = exclusion_reason(label[NO_FINDING], label[DEVICES], devices).fill_null("")
        # several rows of a study are accepted if they agree
        self.key, self.reasons_by_key = key, defaultdict(set)
        for value, code in table.select(pl.col(key), reason.alias("reason")).iter_rows():
            self.reasons_by_key[self._normalise(value)].add(code)

    def exclusion_of(self, image: Mapping[str, str]) -> Exclusion | None:
        """Return why an image (a row of the cohort's shard) is not healthy, None for a healthy one."""
        reasons = self.reasons_by_key.get(self._normalise(image[self.key.lower()]))
        if not reasons:
            return Exclusion("not_labelled", "the table has no row of the image")
        if len(reasons) > 1:
            return Exclusion("not_labelled", "rows of the table contradict each other")
        (reason,) = reasons
        return Exclusion(reason) if reason else None

    def _normalise(self, value: str) -> str:
        """Return a key as it is compared: study_id without "s", the last three parts of a Path, or an image_id."""
        if self.key == "Path":
            return "/".join(PurePosixPath(value).parts[-3:])
        return value.removeprefix("s") if self.key == "study_id" else value


class ReportLabels:
    """Labels from the reports stage. A healthy report mentions lungs or normality, and states no finding or device."""

    name = "reports"

    def __init__(self, lines: Iterable[Mapping], reason_by_image: Mapping[str, str], devices: str):
        """``lines``: results of the reports stage; ``reason_by_image``: {image: why its report was not read}."""
        self.lines, self.unread = {line["study_id"]: line for line in lines}, reason_by_image
        (self.devices, self.normal), self.any_device = read_report_words(), devices == "any"

    def exclusion_of(self, image: Mapping[str, str]) -> Exclusion | None:
        """Return why an image (a row of the cohort's shard) is not healthy, None for a healthy one."""
        line = self.lines.get(image["study_id"])
        if line is None:
            return Exclusion("no_report", self.unread.get(image["image_id"], ""))
        is_normal = any(self.normal.search(normalize_words(sentence)) for sentence in line["sentences"])
        if not line["mentions_lungs"] and not is_normal:
            return Exclusion("no_report", "the report does not mention the lungs")
        if line["comparison_only"]:
            return Exclusion("not_labelled", "the report only compares with an earlier image")
        if any(word["finding"] for word in line["unknown_words"]):
            return Exclusion("not_labelled", "a sentence that may state a finding was not understood")
        if any(statement["presence"] == "positive" for statement in (*line["tuples"], *line["other_tuples"])):
            return Exclusion("has_finding")
        if not self.any_device and self.devices.are_stated_in(line["sentences"]):
            return Exclusion("has_device")
        return None


@cache
def read_report_words() -> tuple[Devices, re.Pattern]:
    """Return (words for devices, pattern of words for a normal image) of ``resources/semisyn/devices.yaml``."""
    entries = load_resource(RESOURCE_FILES[0])
    return compile_devices(entries), re.compile(rf"\b(?:{phrase_pattern(entries['normal'])})\b")

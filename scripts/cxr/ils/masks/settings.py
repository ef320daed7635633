"""Settings of the masks stage: named threshold sets (Table 7), a grid of thresholds, and constants."""

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from itertools import product
from math import prod
from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, Share, constraint, key, refuse_equal_names
from cxr.ils.settings import ReportLogic

ThresholdName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
RESERVED = ("sweep", "count", "configured", "paper", "mimic_ils", "release")
"""Names that a set cannot have: a folder next to the sets' folders, and columns of the table of counts."""
STRICT = "strict"
TauName = Literal["ano", "anatomy", "conf", "signal", "size"]


class TauSettings(Section):
    """The five thresholds of Algorithm 1 (Table 7)."""

    ano: Share = key(0.10, "tau_ano: minimum grey level of an anomalous pixel, as a fraction of 255.", source=PAPER)
    anatomy: Share = key(0.25, "tau_anatomy: minimum IoU of a box and the reported anatomy.", source=PAPER)
    conf: Share = key(0.20, "tau_conf: minimum confidence of a box.", source=PAPER)
    signal: Share = key(0.20, "tau_signal: minimum fraction of anomalous pixels in a box.", source=PAPER)
    size: Share = key(0.10, "tau_size: minimum IoU of a box and a lung.", source=PAPER)


class EdemaTauSettings(TauSettings):
    """The thresholds of edema, which is faint and diffuse (Table 7)."""

    ano: Share = key(0.01, "tau_ano: minimum grey level of an anomalous pixel, as a fraction of 255.", source=PAPER)
    conf: Share = key(0.01, "tau_conf: minimum confidence of a box.", source=PAPER)


class ThresholdSetSettings(Section):
    """Thresholds of one dataset: for edema, and for all other lesion types."""

    general: TauSettings = key(TauSettings, "Thresholds of all lesion types except edema.", source=PAPER)
    edema: EdemaTauSettings = key(EdemaTauSettings, "Thresholds of edema.", source=PAPER)


def _half() -> ThresholdSetSettings:
    return ThresholdSetSettings(
        general=TauSettings(ano=0.05, anatomy=0.125, conf=0.10, signal=0.10, size=0.05),
        edema=EdemaTauSettings(ano=0.005, anatomy=0.125, conf=0.005, signal=0.10, size=0.05),
    )


class GridSettings(Section):
    """A sweep over all combinations of the listed values; other thresholds come from the set ``base``."""

    base: str = key("default", "Named set that gives the thresholds that the grid does not vary.")
    general: dict[TauName, list[Share]] = key(
        lambda: {"ano": [0.05, 0.10, 0.15], "conf": [0.10, 0.20, 0.30]},
        "Threshold values to try for all lesion types except edema; empty: as in base.",
    )
    edema: dict[TauName, list[Share]] = key(dict, "Threshold values to try for edema; empty: as in base.")
    max_points: int = key(100, "Maximum number of grid points; raise it to allow a larger grid.", unit="points", ge=1)

    @constraint
    def _is_meant(self) -> None:
        for part, tau, values in self.axes():
            if len(set(values)) < len(values):
                raise ValueError(f"{part}.{tau} names {max(values, key=values.count)} twice: leave one out")
        points = prod(len(values) for *_, values in self.axes())
        if points > self.max_points:
            raise ValueError(
                f"{points:,} points are more than max_points, {self.max_points}: one job per shard tries them all "
                f"(docs/reference/scale.md): leave values out, or set max_points to {points} to confirm"
            )

    def axes(self) -> list[tuple[str, TauName, list[float]]]:
        """Return (part, tau, values) of every threshold that the grid varies."""
        axes = [("general", tau, values) for tau, values in self.general.items()]
        axes += [("edema", tau, values) for tau, values in self.edema.items()]
        return [axis for axis in axes if axis[2]]


class ThresholdsSettings(Section):
    """Named threshold sets and a grid; the wildcard {thresholds} takes their names."""

    sets: dict[ThresholdName, ThresholdSetSettings] = key(
        lambda: {"default": ThresholdSetSettings(), "half": _half()}, "Threshold sets (Tables 7 and 8).", source=PAPER
    )
    grid: GridSettings = key(
        GridSettings, "Threshold grid for the recall table. The dataset of a point is built under the point's name."
    )
    build: list[str] = key(lambda: ["default"], "Threshold sets whose datasets are built by default.", min_length=1)

    @constraint
    def _names_exist(self) -> None:
        if self.grid.base not in self.sets:
            raise ValueError(f"grid.base is {self.grid.base!r}, but the sets are {', '.join(self.sets)}")
        clash = self.sets.keys() & self.grid_sets().keys()
        if clash:
            raise ValueError(f"the set {min(clash)!r} has the name of a grid point: rename it")
        reserved = [name for name in RESERVED if name in self.sets]
        if reserved:
            raise ValueError(f"a set cannot be named {reserved[0]!r}: rename it")
        if len(set(self.build)) < len(self.build):
            raise ValueError(f"build names {max(self.build, key=self.build.count)!r} twice: leave one out")
        for name in self.build:
            if name not in self.all_sets():
                raise ValueError(f"build names {name!r}, but the sets are {', '.join(self.all_sets())}")
        refuse_equal_names("the sets", self.all_sets())

    def grid_sets(self) -> dict[str, ThresholdSetSettings]:
        """Return the grid's points by name, for example ``ano0.05_conf0.1``; edema's keys are prefixed ``edema-``."""
        axes = self.grid.axes()
        if not axes:
            return {}
        points = {}
        for values in product(*(axis[2] for axis in axes)):
            threshold_values = self.sets[self.grid.base].as_dict()
            words = []
            for (part, tau, _), value in zip(axes, values, strict=True):
                threshold_values[part][tau] = value
                words.append(("edema-" if part == "edema" else "") + f"{tau}{Decimal(repr(value)):f}")
            points["_".join(words)] = ThresholdSetSettings.from_dict(threshold_values)
        return points

    def all_sets(self) -> dict[str, ThresholdSetSettings]:
        """Return the named sets, then the grid's points."""
        return self.sets | self.grid_sets()


class Rules(ReportLogic):
    """Constants (ours; the paper prints none; pixels of the 512 x 512 frame) and rules of masks and units."""

    min_component_px: int = 64
    grow_tolerance: int = 10  # Grey levels between a pixel and the mean of the component that it joins
    grow_px: int = 5
    effusion_fill_share: float = 0.15
    """Height of the lung's lowest part that is added to a basal effusion, in lung heights."""
    ground_min_px: int = 64
    ground_min_share: float = 0.05  # Pixels, and fraction, of the mask that a grounded label contains at least
    name_min_share: float = 0.10  # Fraction of the mask that a zone contains at least to name a lobe

    @classmethod
    def from_job(cls, settings: Mapping) -> "Rules":
        """Return the rules of a job's settings, as a masks shard stores them."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})


class MasksSettings(Rules):
    """Settings that affect the masks of a shard."""

    thresholds: ThresholdSetSettings = key(ThresholdSetSettings, "The threshold set.")


class SweepSettings(Rules):
    """Settings that affect a sweep of threshold sets."""

    sets: dict[str, ThresholdSetSettings] = key(dict, "The threshold sets and grid points by name.")

"""Settings of the masks stage: named sets of thresholds (Table 7), a grid of thresholds, and constants."""

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
"""Names that a threshold set cannot have, because folders or columns of result tables have them."""
STRICT = "strict"
TauName = Literal["ano", "anatomy", "conf", "signal", "size"]


class TauSettings(Section):
    """The five thresholds of Algorithm 1 (Table 7)."""

    ano: Share = key(0.10, "tau_ano: minimum value of an anomalous pixel in the anomaly map, 0 to 1.", source=PAPER)
    anatomy: Share = key(0.25, "tau_anatomy: minimum IoU of a box and the zones that the report names.", source=PAPER)
    conf: Share = key(0.20, "tau_conf: minimum confidence of a box.", source=PAPER)
    signal: Share = key(0.20, "tau_signal: minimum fraction of anomalous pixels in a box.", source=PAPER)
    size: Share = key(0.10, "tau_size: minimum IoU of a box and a lung.", source=PAPER)


class EdemaTauSettings(TauSettings):
    """The thresholds of edema, which is faint and diffuse (Table 7)."""

    ano: Share = key(0.01, "tau_ano: minimum value of an anomalous pixel in the anomaly map, 0 to 1.", source=PAPER)
    conf: Share = key(0.01, "tau_conf: minimum confidence of a box.", source=PAPER)


class ThresholdSetSettings(Section):
    """A threshold set: the thresholds of edema, and those of all other lesion types."""

    general: TauSettings = key(TauSettings, "Thresholds of all lesion types except edema.", source=PAPER)
    edema: EdemaTauSettings = key(EdemaTauSettings, "Thresholds of edema.", source=PAPER)


def _half() -> ThresholdSetSettings:
    return ThresholdSetSettings(
        general=TauSettings(ano=0.05, anatomy=0.125, conf=0.10, signal=0.10, size=0.05),
        edema=EdemaTauSettings(ano=0.005, anatomy=0.125, conf=0.005, signal=0.10, size=0.05),
    )


class GridSettings(Section):
    """Grid of all combinations of the listed threshold values. Other thresholds come from the set ``base``."""

    base: str = key("default", "Threshold set that gives the values of all thresholds that the grid does not list.")
    general: dict[TauName, list[Share]] = key(
        lambda: {"ano": [0.05, 0.10, 0.15], "conf": [0.10, 0.20, 0.30]},
        "Values to try for all lesion types except edema, {threshold: list}. An empty list means the value of `base`.",
    )
    edema: dict[TauName, list[Share]] = key(
        dict, "Values to try for edema, {threshold: list}. An empty list means the value of `base`."
    )
    max_points: int = key(100, "Maximum number of threshold sets in a grid.", unit="points", ge=1)

    @constraint
    def _is_meant(self) -> None:
        for part, tau, values in self.axes():
            if len(set(values)) < len(values):
                raise ValueError(f"{part}.{tau} lists {max(values, key=values.count)} twice: remove one")
        points = prod(len(values) for *_, values in self.axes())
        if points > self.max_points:
            raise ValueError(
                f"the grid has {points:,} points, more than max_points ({self.max_points}), and each shard's job tries "
                f"them all (docs/reference/scale.md): list fewer values, or set max_points to {points}"
            )

    def axes(self) -> list[tuple[str, TauName, list[float]]]:
        """Return ("general" or "edema", threshold name, values) for every threshold that the grid varies."""
        axes = [("general", tau, values) for tau, values in self.general.items()]
        axes += [("edema", tau, values) for tau, values in self.edema.items()]
        return [axis for axis in axes if axis[2]]


class ThresholdsSettings(Section):
    """Named threshold sets and a grid. The name of a set replaces {thresholds} in the paths of its results."""

    sets: dict[ThresholdName, ThresholdSetSettings] = key(
        lambda: {"default": ThresholdSetSettings(), "half": _half()}, "Threshold sets by name (Table 7).", source=PAPER
    )
    grid: GridSettings = key(
        GridSettings, "Grid of thresholds for the recall table. `build` may name its points, such as ano0.05_conf0.1."
    )
    build: list[str] = key(lambda: ["default"], "Threshold sets or grid points that get a dataset each.", min_length=1)

    @constraint
    def _names_exist(self) -> None:
        if self.grid.base not in self.sets:
            raise ValueError(f"grid.base {self.grid.base!r} is no threshold set: name one of {', '.join(self.sets)}")
        clash = self.sets.keys() & self.grid_sets().keys()
        if clash:
            raise ValueError(f"the threshold set {min(clash)!r} has the name of a grid point: rename the set")
        reserved = [name for name in RESERVED if name in self.sets]
        if reserved:
            raise ValueError(f"a threshold set cannot have the reserved name {reserved[0]!r}: rename the set")
        if len(set(self.build)) < len(self.build):
            raise ValueError(f"build lists {max(self.build, key=self.build.count)!r} twice: remove one")
        for name in self.build:
            if name not in self.all_sets():
                raise ValueError(f"build: {name!r} is no threshold set: name one of {', '.join(self.all_sets())}")
        refuse_equal_names("the sets", self.all_sets())

    def grid_sets(self) -> dict[str, ThresholdSetSettings]:
        """Return {name: threshold set} of the grid's points, such as ``ano0.05_conf0.1`` or ``edema-ano0.02``."""
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
        """Return {name: threshold set} of the named sets and then of the grid's points."""
        return self.sets | self.grid_sets()


class Rules(ReportLogic):
    """Rules and constants of masks and positive instructions. The paper has no values for the constants."""

    min_component_px: int = 64  # Minimum area of a component
    grow_tolerance: int = 10  # Maximum difference in grey levels from a component's mean to an added pixel
    grow_px: int = 5  # Maximum number of steps of region growing
    effusion_fill_share: float = 0.15
    """Fraction of the lung's height, from its base, that is added to the mask of a basal effusion."""
    ground_min_px: int = 64  # Minimum number of mask pixels in the zone of a grounded label
    ground_min_share: float = 0.05  # Minimum fraction of the mask in the zone of a grounded label
    name_min_share: float = 0.10  # Minimum fraction of the mask in a zone that is named in place of its lobe

    @classmethod
    def from_job(cls, settings: Mapping) -> "Rules":
        """Return the rules in the settings of a job, which are stored with each shard of masks."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})


class MasksSettings(Rules):
    """Settings that affect the masks of a shard."""

    thresholds: ThresholdSetSettings = key(ThresholdSetSettings, "Threshold set by which the masks are made.")


class SweepSettings(Rules):
    """Settings that affect a sweep, which tries many threshold sets on one shard."""

    sets: dict[str, ThresholdSetSettings] = key(dict, "Threshold sets to try, {name: set}, including grid points.")

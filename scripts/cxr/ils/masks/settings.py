"""Settings of the masks stage: named threshold sets (Table 7), the grid of a sweep, and the logic of reports."""

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

    ano: Share = key(0.10, "tau_ano: fraction of grey level 255 from which a pixel is anomalous.", source=PAPER)
    anatomy: Share = key(0.25, "tau_anatomy: smallest IoU of a box and the reported anatomy.", source=PAPER)
    conf: Share = key(0.20, "tau_conf: smallest confidence of a box.", source=PAPER)
    signal: Share = key(0.20, "tau_signal: smallest fraction of anomalous pixels in a box.", source=PAPER)
    size: Share = key(0.10, "tau_size: smallest IoU of a box and a lung.", source=PAPER)


class EdemaTauSettings(TauSettings):
    """The thresholds of edema, which is faint and diffuse (Table 7)."""

    ano: Share = key(0.01, "tau_ano: fraction of grey level 255 from which a pixel is anomalous.", source=PAPER)
    conf: Share = key(0.01, "tau_conf: smallest confidence of a box.", source=PAPER)


class ThresholdSetSettings(Section):
    """ThresholdsSettings of one dataset: for edema, and for every other target."""

    general: TauSettings = key(TauSettings, "ThresholdsSettings of all targets but edema.", source=PAPER)
    edema: EdemaTauSettings = key(EdemaTauSettings, "ThresholdsSettings of edema.", source=PAPER)


def _half() -> ThresholdSetSettings:
    return ThresholdSetSettings(
        general=TauSettings(ano=0.05, anatomy=0.125, conf=0.10, signal=0.10, size=0.05),
        edema=EdemaTauSettings(ano=0.005, anatomy=0.125, conf=0.005, signal=0.10, size=0.05),
    )


class GridSettings(Section):
    """A sweep over all combinations of the listed values; other thresholds are those of the set ``base``."""

    base: str = key("default", "Named set with the values of all thresholds that the grid does not vary.")
    general: dict[TauName, list[Share]] = key(
        lambda: {"ano": [0.05, 0.10, 0.15], "conf": [0.10, 0.20, 0.30]},
        "Values to try for all lesion types except edema; empty: as in base.",
    )
    edema: dict[TauName, list[Share]] = key(dict, "Values to try for edema; empty: as in base.")
    max_points: int = key(100, "Largest number of grid points; raise it to confirm a larger grid.", unit="points", ge=1)

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
    """Named threshold sets and a grid; the names are the {thresholds} wildcard."""

    sets: dict[ThresholdName, ThresholdSetSettings] = key(
        lambda: {"default": ThresholdSetSettings(), "half": _half()}, "Named sets (Tables 7 and 8).", source=PAPER
    )
    grid: GridSettings = key(
        GridSettings, "Sweep for the recall table; the dataset of a point can also be built, by the point's name."
    )
    build: list[str] = key(lambda: ["default"], "Sets whose dataset `snakemake` builds without a target.", min_length=1)

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
    """Numbers (ours, as the paper prints none; pixels of the 512 x 512 frame) and logic of masks and units."""

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
    """What the masks of a shard depend on."""

    thresholds: ThresholdSetSettings = key(ThresholdSetSettings, "The threshold set.")


class SweepSettings(Rules):
    """What a sweep of threshold sets depends on."""

    sets: dict[str, ThresholdSetSettings] = key(dict, "The threshold sets and grid points by name.")

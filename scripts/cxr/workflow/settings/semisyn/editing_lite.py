"""Settings of the editing's engine lite: how strongly, how softly and with how much detail each finding is painted.

All are ours, chosen by the measures of docs/systems/semisyn.md on healthy films, and none is measured on lesions.
"""

from typing import Annotated, Literal

from cxr.base.settings import Check, Limits, Section, Share, key


def _rising(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError(f"the range {list(value)} falls: give the smaller number first")
    return value


Shares = Annotated[tuple[Share, Share], Check(_rising)]
Count = Annotated[int, Limits(ge=0, le=50)]
Counts = Annotated[tuple[Count, Count], Check(_rising)]
Size = Annotated[float, Limits(ge=0, le=64)]
Sizes = Annotated[tuple[Size, Size], Check(_rising)]

DELTA = "Share of the brightness that the densest place lacks to that of water."
FLAT = "Share of all the film's detail that goes at the densest place."
LOST = "Share of the vessels' contrast that goes besides."
HALF = "half box sizes"


class Airspace(Section):
    """A lesion of the air spaces."""

    delta: Shares = key((0.15, 0.5), DELTA)
    soft: Sizes = key((0.8, 1.3), "Width of the soft edge.", unit=HALF)
    exponent: Sizes = key((2.0, 2.8), "Exponent of the outline: 2 an ellipse, more a rounder box.")
    ragged: Share = key(0.15, "How far the outline is displaced.", unit=HALF)
    fade: Share = key(0.16, "Width in which the lesion ends before a side of its box.", unit=HALF)
    lean: Share = key(0.25, "How much denser it is towards the chest wall, the heart and the diaphragm.")
    base: Shares = key((0.75, 1.0), "Density of the haze between the cores.", unit="cores")
    patchy_base: Shares = key((0.45, 0.7), "The same under a prompt with patchy.", unit="cores")
    cores: Counts = key((1, 3), "Dense cores.")
    patchy_cores: Counts = key((3, 6), "The same under a prompt with patchy.")
    texture: Share = key(0.03, "Deviation of the lesion's own texture.", unit="delta")
    net: Share = key(0.3, "Height of the reticular lines under a prompt with infiltrate.", unit="delta")
    ground_glass: Share = key(0.5, "delta under a prompt with ground-glass.", unit="delta")
    flat: Shares = key((0.2, 0.6), FLAT)
    lost: Shares = key((0.0, 0.4), LOST)
    least: Share = key(
        0.2, "Smallest mean change, to which a fainter lesion is raised.", unit="deviations of the lungs"
    )


class Opacity(Airspace):
    """Lung opacity."""


class Consolidation(Airspace):
    """Consolidation: denser, fuller, with air-filled bronchi."""

    delta: Shares = key((0.3, 0.7), DELTA)
    soft: Sizes = key((0.7, 1.1), "Width of the soft edge.", unit=HALF)
    exponent: Sizes = key((2.0, 2.6), "Exponent of the outline: 2 an ellipse, more a rounder box.")
    ragged: Share = key(0.17, "How far the outline is displaced.", unit=HALF)
    fade: Share = key(0.2, "Width in which the lesion ends before a side of its box.", unit=HALF)
    lean: Share = key(0.35, "How much denser it is towards the chest wall, the heart and the diaphragm.")
    base: Shares = key((0.8, 1.0), "Density of the haze between the cores.", unit="cores")
    patchy_base: Shares = key((0.5, 0.75), "The same under a prompt with patchy.", unit="cores")
    cores: Counts = key((2, 3), "Dense cores.")
    net: Share = key(0.2, "Height of the reticular lines under a prompt with infiltrate.", unit="delta")
    flat: Shares = key((0.3, 0.55), FLAT)
    bronchograms: Counts = key((0, 4), "Air-filled bronchi.")
    bronchogram: Shares = key((0.06, 0.18), "How much less dense they are.")
    fissure: bool = key(True, "Whether a lesion of the right upper or middle lobe ends sharply at the minor fissure.")


class Nodule(Airspace):
    """Nodule, for a user's findings_file: round, homogeneous, well outlined."""

    delta: Shares = key((0.4, 0.7), DELTA)
    soft: Sizes = key((0.25, 0.45), "Width of the soft edge.", unit=HALF)
    exponent: Sizes = key((2.0, 2.1), "Exponent of the outline: 2 an ellipse, more a rounder box.")
    ragged: Share = key(0.05, "How far the outline is displaced.", unit=HALF)
    fade: Share = key(0.05, "Width in which the lesion ends before a side of its box.", unit=HALF)
    lean: Share = key(0.0, "How much denser it is towards the chest wall, the heart and the diaphragm.")
    base: Shares = key((0.95, 1.0), "Density of the haze between the cores.", unit="cores")
    cores: Counts = key((1, 1), "Dense cores.")


class Edema(Section):
    """Pulmonary edema."""

    delta: Shares = key((0.2, 0.42), DELTA)
    soft: Sizes = key((0.7, 1.0), "Width of the soft edge.", unit=HALF)
    fade: Share = key(0.16, "Width in which it ends before a side of its box.", unit=HALF)
    reach: Shares = key((0.4, 0.6), "How far the haze about the hilum reaches.", unit="lung sizes")
    base: Shares = key((0.3, 0.45), "Share of the haze that is even and grows to the base.")
    lines: Counts = key((6, 14), "Septal lines of a lung.")
    cuffs: Counts = key((2, 5), "Cuffed bronchi of a lung; twice as many under a prompt with cuffing.")
    cuff_size: Sizes = key((4.0, 9.0), "Their width.", unit="pixels")
    flat: Shares = key((0.1, 0.25), FLAT)
    lost: Shares = key((0.0, 0.15), LOST)


class Effusion(Section):
    """Pleural effusion."""

    delta: Shares = key((0.55, 0.8), "Share of the brightness that the fluid's upper part lacks to that of the tissue.")
    base: Share = key(0.92, "The same in its lower part.")
    soft: Shares = key((0.12, 0.28), "Height over which the fluid thins out at its surface.", unit="box heights")
    rise: Shares = key((0.35, 0.8), "How much higher the fluid stands at the chest wall.", unit="levels")
    reach: Shares = key((0.15, 0.38), "Distance from the chest wall over which it climbs.", unit="box widths")
    kept: Shares = key((0.2, 0.5), "Share of the ribs' contrast that is seen through the fluid.")


class Atelectasis(Section):
    """Atelectasis: plates, or a wedge."""

    delta: Shares = key((0.28, 0.52), DELTA)
    bands: Share = key(0.6, "Chance of plates, where the prompt tells neither plates nor a lobe nor a collapse.")
    number: Counts = key((2, 4), "Plates.")
    thick: Shares = key((0.02, 0.05), "Thickness of a plate.", unit="lung heights")
    haze: Shares = key((0.25, 0.55), "Density of the base round the plates.", unit="delta")
    soft: Shares = key((0.1, 0.5), "Softness of a wedge's upper edge.", unit=HALF)
    texture: Share = key(0.25, "Height of the crowded vessels of a wedge.", unit="delta")
    loss: Shares = key((0.008, 0.03), "How far the diaphragm is pulled up.", unit="lung heights")
    collapse: Shares = key((0.03, 0.1), "The same under a prompt with collapse.", unit="lung heights")
    flat: Shares = key((0.0, 0.15), FLAT)
    lost: Shares = key((0.1, 0.3), LOST)


class Pneumothorax(Section):
    """Pneumothorax: a pleural line, and air beyond it."""

    delta: Shares = key((0.04, 0.1), "Share of the brightness that goes beyond the line.")
    depth: Shares = key((0.08, 0.45), "Smallest and largest depth of the air.", unit="lung widths")
    share: Shares = key((0.85, 1.0), "Depth of the air, of what the box holds.", unit="box widths")
    tail: Shares = key((0.2, 0.6), "Depth of the air below, of the deepest.")
    width: Sizes = key((0.8, 1.3), "Distance at which the pleural line has faded to a third.", unit="pixels")
    line: Shares = key((0.07, 0.15), "Share of the missing brightness that the line gains.")
    denser: Shares = key((0.02, 0.06), "Share of the missing brightness that the lung before the line gains.")
    lost: Shares = key((0.85, 1.0), "Share of the vessels that goes beyond the line.")
    grain: Share = key(0.45, "Share of the film's finest detail that stays beyond the line.")


class Lite(Section):
    """The engine lite: one section a painter. That of cardiomegaly has none: it warps to the job's ratio."""

    curve: Literal["screen", "log"] = key("screen", "How brightness follows absorption.")
    fissure: tuple[Share, Share] = key(
        (0.5, 0.55), "Where the right upper lobe ends, (medial, lateral).", unit="lung heights"
    )
    atelectasis: Atelectasis = key(Atelectasis, "The painter atelectasis.")
    consolidation: Consolidation = key(Consolidation, "The painter consolidation.")
    edema: Edema = key(Edema, "The painter edema.")
    opacity: Opacity = key(Opacity, "The painter opacity.")
    effusion: Effusion = key(Effusion, "The painter effusion.")
    pneumothorax: Pneumothorax = key(Pneumothorax, "The painter pneumothorax.")
    nodule: Nodule = key(Nodule, "The painter nodule, for a finding of semisyn.findings_file.")

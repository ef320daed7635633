"""The rules of the masks stage: constants of refinement and naming, and the logic of reports."""

from collections.abc import Mapping
from dataclasses import fields

from cxr.ils.settings import ReportLogic

STRICT = "strict"


class Rules(ReportLogic):
    """Numbers and logic behind masks and positive units. Pixels are those of the frame (512 x 512).

    The paper describes each step (A.3 to A.5) but prints no numbers; these are ours.
    """

    denoise: str = "both"
    """``both``: components and c3 use the opened map; ``components_only``: c3 uses the map before opening."""
    min_component_px: int = 64
    grow_tolerance: int = 10
    """Grey levels between a pixel and the mean of the component that it joins."""
    grow_px: int = 5
    effusion_fill_share: float = 0.15
    """Height of the lung's lowest part that is added to a basal effusion, in lung heights."""
    opposite_lung: str = "cut"
    """Components in a lung without a productive box: ``cut`` or ``keep``."""
    ground_min_px: int = 64
    ground_min_share: float = 0.05
    """Pixels, and fraction, of the mask that a grounded label contains at least."""
    name_min_share: float = 0.10
    """Fraction of the mask that a zone contains at least to name a lobe."""
    global_requires_definitive: bool = True
    """Whether all findings of a global positive must be definitive."""

    @classmethod
    def from_job(cls, settings: Mapping) -> "Rules":
        """Return the rules of a job's settings, as a masks shard stores them."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

"""The rules of the masks stage, without thresholds; the settings hold the defaults."""

from dataclasses import dataclass

STRICT = "strict"


@dataclass(frozen=True)
class Rules:
    """Settings of refinement, grounding, naming and units. Pixels are those of the frame (512 x 512)."""

    denoise: str
    """``both``: components and c3 use the opened map; ``components_only``: c3 uses the map before opening."""
    min_component_px: int
    grow_tolerance: int
    grow_px: int
    effusion_fill_share: float
    opposite_lung: str
    """``cut`` or ``keep``."""
    ground_min_px: int
    ground_min_share: float
    name_min_share: float
    weak_hedges: str
    """``tentative`` or ``block_only``."""
    global_requires_definitive: bool
    predicted_other: str
    blocking: str
    kinds: str
    joint_location: str
    one_answer: str

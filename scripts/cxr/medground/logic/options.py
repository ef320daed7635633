"""The numbers of the logic, as its stages receive them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LogicOptions:
    """Edges and margins (medground.md section 5). Each is a key of ``medground.logic``."""

    tiny: float
    small: float
    medium: float
    size_margin: float
    relative_from: int
    round: float
    elongated: float
    oval_solidity: float
    irregular: float
    shape_margin: float
    shape_min_px: int
    position_margin: float
    zone_yes: float
    zone_no: float
    area_gap: float
    position_gap: float
    farthest_nth: int
    relation_gap: float
    nearest_gap: float
    contrast_yes: float
    contrast_no: float
    texture_rough: float
    texture_even: float

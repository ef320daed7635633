"""The thresholds and margins of the logic. They are this project's choices; none is a setting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LogicOptions:
    """Where an attribute begins, and how near to a threshold it is unclear."""

    tiny: float = 0.005
    """Areas below this fraction of the image are tiny."""
    small: float = 0.03
    """Areas from tiny up to this fraction are small."""
    medium: float = 0.15
    """Areas from small up to this fraction are medium-sized; above it, large."""
    size_margin: float = 0.15
    """Areas this near to a threshold, as a fraction of it, are unclear."""
    relative_from: int = 4
    """Fewest regions of a class of which some are the larger or the smaller ones."""
    round: float = 0.25
    """Elongation below which a region is round."""
    elongated: float = 0.5
    """Elongation from which a region is elongated; below it, oval."""
    oval_solidity: float = 0.9
    """Smallest solidity of an oval region."""
    irregular: float = 0.8
    """Solidity below which a region is irregular."""
    shape_margin: float = 0.05
    """Elongations and solidities this near to a threshold are unclear."""
    shape_min_px: int = 64
    """Area below which a region's shape is unclear, px."""
    position_margin: float = 0.05
    """Positions this near to a boundary, as a fraction of the side, are unclear."""
    zone_yes: float = 0.5
    """Fraction of a region in a zone from which it lies there."""
    zone_no: float = 0.3
    """Fraction of a region in a zone below which it does not lie there; between the two it is unclear."""
    area_gap: float = 0.2
    """Fraction by which the largest region's area must exceed the next one's."""
    position_gap: float = 0.03
    """Smallest distance to the next region for leftmost and the like, as a fraction of the side."""
    farthest_nth: int = 3
    """Highest n of "the n-th from the left"."""
    relation_gap: float = 0.05
    """Smallest distance of two centroids for left of and the like, as a fraction of the side."""
    nearest_gap: float = 0.2
    """Fraction by which the next region must be farther away than the nearest one."""
    contrast_yes: float = 0.8
    """Contrast from which a region is bright, or dark if negative."""
    contrast_no: float = 0.3
    """Contrast below which it is neither; between the two it is unclear."""
    texture_rough: float = 1.3
    """Texture from which a region is heterogeneous."""
    texture_even: float = 0.77
    """Texture up to which a region is homogeneous; between the two it is unclear."""

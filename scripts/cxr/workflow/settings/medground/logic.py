"""Settings of the logic: which regions have an attribute, and from where on it is unclear."""

from cxr.base.settings import Section, Share, constraint, key


class Logic(Section):
    """Edges and margins of what a query may say. A change re-runs queries and verification, no regions."""

    tiny: float = key(0.005, "Areas below this fraction of the image are tiny.", gt=0, lt=1)
    small: float = key(0.03, "Areas from tiny up to this fraction are small.", gt=0, lt=1)
    medium: float = key(0.15, "Areas from small up to this fraction are medium-sized; above it, large.", gt=0, lt=1)
    size_margin: float = key(0.15, "An area this near to an edge, as a fraction of it, is unclear.", ge=0, lt=1)
    relative_from: int = key(4, "Regions of a class from which on some are the larger or the smaller ones.", ge=3)
    round: float = key(0.25, "Elongation below which a region is round.", gt=0, lt=1)
    elongated: float = key(0.5, "Elongation from which on a region is elongated; below it, oval.", gt=0, lt=1)
    oval_solidity: float = key(0.9, "Least solidity of an oval region.", gt=0, le=1)
    irregular: float = key(0.8, "Solidity below which a region is irregular.", gt=0, le=1)
    shape_margin: float = key(0.05, "An elongation or solidity this near to an edge is unclear.", ge=0, lt=1)
    shape_min_px: int = key(64, "Area below which a region's shape is unclear.", unit="px", ge=1)
    position_margin: Share = key(0.05, "A place this near to an edge, as a fraction of the side, is unclear.")
    zone_yes: Share = key(0.5, "Fraction of a region in a zone from which on it lies there.")
    zone_no: Share = key(0.3, "Fraction of a region in a zone below which it does not lie there.")
    area_gap: float = key(0.2, "By how much the largest region's area must exceed the next one's.", ge=0)
    position_gap: Share = key(0.03, "Least distance to the next region for leftmost and the like, over the side.")
    farthest_nth: int = key(3, "The highest n of `the n-th from the left`.", ge=1, le=3)
    relation_gap: Share = key(0.05, "Least distance of two centroids, over the side, for left of and the like.")
    nearest_gap: float = key(0.2, "By how much the next region must be farther away than the nearest one.", ge=0)
    contrast_yes: float = key(0.8, "Contrast from which on a region is bright, or dark if negative.", gt=0)
    contrast_no: float = key(0.3, "Contrast below which it is not.", ge=0)
    texture_rough: float = key(1.3, "Texture from which on a region is heterogeneous.", gt=0)
    texture_even: float = key(0.77, "Texture up to which a region is homogeneous.", gt=0)

    @constraint
    def _edges_rise(self) -> None:
        for low, high in (
            ("tiny", "small"), ("small", "medium"), ("round", "elongated"), ("irregular", "oval_solidity"),
            ("zone_no", "zone_yes"), ("contrast_no", "contrast_yes"), ("texture_even", "texture_rough"),
        ):  # fmt: skip
            if not getattr(self, low) < getattr(self, high):
                raise ValueError(f"{low} is {getattr(self, low)}, not below {high} {getattr(self, high)}: lower it")

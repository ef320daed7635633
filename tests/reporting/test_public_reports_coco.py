"""COCO files after public bug reports."""

import numpy as np
import pytest

from cxr.geometry.affine import fit_affine
from cxr.reporting.agreement.references import load_reference, region_in_frame


def test_a_polygon_of_objects_is_read_or_is_a_broken_mask(shared):
    path = shared / "fixtures/public_reports/c1_coco_points_as_objects/coco.json"
    reference = load_reference("agreement.references.x.path", "coco", path, {}, "{stem}")
    (annotation,) = reference.regions["a"]
    region, reason = region_in_frame(annotation, "consolidation", fit_affine((1000, 800), 512, "pad"), (1000, 800), 512)
    if region is None:
        assert reason == "broken_mask"
    else:  # a right triangle with two sides of 200 pixels, at 0.512 of its size
        assert region.mask.sum() == pytest.approx(200 * 200 / 2 * 0.512**2, rel=0.05)
        np.testing.assert_allclose(region.boxes, [[102.4, 102.4, 204.8, 204.8]], atol=1.1)

"""The grid of configurations against the paper's counts (Appendix E) and the arithmetic of a search."""

from cxr.semisyn.editing.settings import PIPELINES, EditingConfig, EditingGrid
from cxr.semisyn.shared import BLURS

PAPER = EditingGrid(pipelines=list(PIPELINES))
IMAGES = 35 * 7
"""Trial jobs of a configuration: 35 samples of seven findings."""


def different(points: dict[str, EditingConfig]) -> int:
    return len({config.effective() for config in points.values()})


def test_a_sequential_search_varies_each_axis_alone():
    points = PAPER.points("sequential")
    assert len(points) == 4 + 1 + 6 + 3 + 2 + 3 + 2 + 1 == 22
    # the own strength of the model behind roentgen is 1.0, which is a point of its own
    assert different(points) == 21
    assert different(points) * IMAGES == 5145
    assert points["roentgen_after"].effective() == points["roentgen_after_strength1.0"].effective()
    assert points["roentgen_after_extent0.9"].extent == 0.9
    assert points["roentgen_after_guidance7.5"].guidance == 7.5
    assert points["roentgen_after_negative"].negative == "No acute cardiopulmonary process."
    blurred = points["roentgen_after_blur-ggauss_b6"]
    assert BLURS[blurred.blur] == ("ggauss", 1.0, 6.0)
    changed = [
        sum(getattr(config, name) != getattr(points["roentgen_after"], name) for name in config.declared())
        for name, config in points.items() if name.startswith("roentgen_after_") and "blur" not in name
    ]  # fmt: skip
    assert changed == [1] * (1 + 3 + 2 + 3 + 2 + 1)


def test_the_search_of_the_figures_and_the_product():
    assert len(PAPER.points("figures")) == different(PAPER.points("figures")) == 4 * 7 * 4 == 112
    whole = PAPER.points("product")
    assert len(whole) == 12096 + 4032 == 16128
    assert different(whole) == 8064 + 4032 == 12096
    assert set(PAPER.points("figures")) <= set(whole)
    assert set(PAPER.points("sequential")) <= set(whole)


def test_another_base_or_none():
    assert EditingGrid().points("sequential") == {}
    points = EditingGrid(pipelines=["radedit"]).points("sequential")
    assert "radedit_guidance19.0" in points
    assert len(points) == 1 + 18
    assert different(points) == 19  # RadEdit's own strength is 0.7


def test_settings_that_an_engine_does_not_read_make_no_other_configuration():
    assert EditingConfig(extent=0.9).effective() == EditingConfig().effective()
    assert EditingConfig(prompt="label").effective() != EditingConfig().effective()
    radedit = EditingConfig(engine="radedit")
    assert radedit.effective() == EditingConfig(engine="radedit", blending="before", strength=0.7).effective()
    assert radedit.effective() != EditingConfig(engine="radedit", strength=0.9).effective()

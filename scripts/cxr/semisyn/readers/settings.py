"""Settings of the stage semisyn_readers."""

from cxr.base.settings import PAPER, Expert, Section, constraint, key, refuse_equal_names

SEED = 2026
"""Seed of the selection of images, of each reader's order and of the bootstrap."""


class ReadersSettings(Section):
    """The reader study: experts tell edited X-rays from real ones and name the findings."""

    experts: list[Expert] = key(
        lambda: ["A", "B", "C"],
        "Names of the readers, used in file names; each gets a page.",
        source=PAPER,
        min_length=1,
    )
    images: int = key(10, "Images per finding and source (real or edited).", unit="images", source=PAPER, ge=1, le=1000)
    reference: str = key("", "Reference in semisyn.references whose images in the cohort are the real ones.")
    sheets: list[str] = key(list, "The readers' completed sheets (CSV), or folders of them.")

    @constraint
    def _readers_are_distinct(self) -> None:
        refuse_equal_names("the readers", self.experts)
        if len(set(self.experts)) < len(self.experts):
            raise ValueError(f"experts names {max(self.experts, key=self.experts.count)!r} twice: rename one")

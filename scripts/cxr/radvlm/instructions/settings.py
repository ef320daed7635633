"""Settings of RadVLM's instruction mixes."""

from typing import Annotated, Literal

from cxr.base.settings import PAPER, Limits, Section, constraint, key, refuse_equal_names
from cxr.radvlm.samples import TASKS

MixName = Annotated[str, Limits(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Task = Literal[TASKS]  # type: ignore[valid-type]


class Asked(Section):
    """A task of a source in a mix."""

    repeat: int = key(
        1, "Passes over the samples, each with new wordings; 0: the source is not used for the task.", ge=0, le=1000
    )
    most: int | None = key(
        None, "Maximum of pairs in train, images selected by hash; 0: all; empty: as in the preset.", ge=0
    )


class Mix(Section):
    """A mix: a preset with changes."""

    preset: Literal["own", "paper", "code", "paper_plus_ils"] = key(
        "own",
        "own: every task from the cohort; paper, code: the published mixes, from the sources in use; "
        "paper_plus_ils: paper, and ILS of the cohort.",
    )
    tasks: dict[Task, dict[str, Asked]] = key(dict, "{task: {source: repeat, most}} that override the preset.")
    thresholds: str = key(
        "",
        "Threshold set of the ILS pairs and masks; `mimic_ils`: those of the authors' release whose images are in"
        " the cohort; empty: the first of `thresholds.build`.",
    )


class Llava(Section):
    """The export for LLaVA's trainers, made by `results/radvlm/instructions/{mix}/llava`."""

    convention: Literal["unit", "unit_short", "grid1000"] = key(
        "unit", "Format of box coordinates in the answers: 0.30, 0.3 or 300.", source=PAPER
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "frame: PNG files of the frames; original: paths of the source's files, without copies."
    )


class Instructions(Section):
    """The instruction mixes."""

    mixes: dict[MixName, Mix] = key(lambda: {"all": Mix()}, "Mixes, by name.", source=PAPER, min_length=1)
    llava: Llava = key(Llava, "The export for LLaVA's trainers.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("mixes", self.mixes)

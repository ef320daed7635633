"""Settings of RadVLM's instructions: the mixes, and how their samples are worded."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key, refuse_equal_names

MixName = Annotated[str, Limits(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Task = Literal[
    "report_generation", "classification", "anatomical_grounding", "abnormality_grounding", "abnormality_detection",
    "phrase_grounding", "conversation", "conversation_grounded", "absent_grounding", "ils_grounding",
    "ils_segmentation",
]  # fmt: skip


class Asked(Section):
    """A task of a source in a mix."""

    repeat: int = key(1, "Passes, each with new wordings; 0: the task is not asked of the source.", ge=0, le=1000)
    most: int | None = key(
        None, "Pairs in train at most, images drawn by a hash; 0: all; empty: as the preset has it.", ge=0
    )


class Mix(Section):
    """A mix: a preset, and what is changed of it."""

    preset: Literal["own", "paper", "code", "paper_plus_ils"] = key(
        "own",
        "own: every task from the cohort; paper, code: the published mixes, of the sources that are there; "
        "paper_plus_ils: paper, and the ILS dataset of the cohort.",
    )
    tasks: dict[Task, dict[str, Asked]] = key(dict, "{task: {source: repeat, most}}, over the preset's.")
    thresholds: str = key(
        "",
        "Threshold set whose ILS pairs and masks the mix takes, or `mimic_ils`, those of the authors' release whose "
        "images the cohort has; empty: the first of `thresholds.build`.",
    )


class Llava(Section):
    """The export as LLaVA's trainers read it, made when `results/radvlm/instructions/{mix}/llava` is asked for."""

    convention: Literal["unit", "unit_short", "grid1000"] = key(
        "unit", "How boxes are written in the answers: 0.30, 0.3 or 300.", source=PAPER
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "frame: PNG files of what the frames show; original: the files of the source are named, not copied."
    )


class Instructions(Section):
    """The instruction mixes."""

    mixes: dict[MixName, Mix] = key(lambda: {"all": Mix()}, "Mixes, by name.", source=PAPER, min_length=1)
    regions: Literal["regions29", "file"] = key(
        "regions29", "Regions that anatomical grounding asks. file: every one that a source has.", source=PAPER
    )
    absent_share: float = key(
        1.0, "Questions for an absent finding, for each sample of abnormality_grounding.", ge=0, le=100
    )
    label_case: Literal["lower", "as_is"] = key("lower", "Case of findings and regions in a sentence.", source=AUTHORS)
    order: Literal["shuffled", "by_task"] = key("shuffled", "Order of the lines of train.")
    llava: Llava = key(Llava, "The export for LLaVA's trainers.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("mixes", self.mixes)

"""The stages, each described in one sentence: the only source of docs/reference/stages.md."""

from dataclasses import dataclass
from typing import get_args, get_type_hints

from cxr.base.settings import Section


@dataclass(frozen=True)
class Stage:
    """One stage, which is a target of Snakemake. ``page``: the page of docs/ on it, if there is one."""

    name: str
    wing: str
    sentence: str
    page: str = ""


STAGES = (
    Stage(
        "cohort", "imaging", "Reads headers and tables, keeps frontal chest radiographs, splits and shards by subject."
    ),
    Stage(
        "frames",
        "imaging",
        "Decodes, windows and fits each image to one size; keeps the best decodable image of each study.",
    ),
    Stage(
        "organs",
        "imaging",
        "Finds right lung, left lung and heart; an image that is not a whole, upright chest (turned, mirrored, "
        "inverted, a photograph) stops here.",
    ),
    Stage("anomaly", "imaging", "Edits lesions out of the image; the anomaly map is what the edit darkened."),
    Stage("anatomy", "imaging", "Finds 15 zones and lobes and the heart, on the edited image."),
    Stage("boxes", "imaging", "Finds lesion boxes with confidences, or reads them from a table."),
    Stage("weights", "imaging", "Downloads or converts the chosen models' weights, once, and records their licences.",
          "how-to/models.md"),
    Stage(
        "reports",
        "language",
        "Finds the section of a report, then every finding: presence, certainty, location, lesion type.",
        "reference/reports.md",
    ),
    Stage("masks", "ils", "Makes a lesion mask for each finding (Algorithm 1), and records the confirmed locations."),
    Stage("dataset", "ils", "Writes instruction-answer pairs, positive and negative.", "systems/ils.md"),
    Stage(
        "paraphrase",
        "ils",
        "Rewords each instruction as three personas would; checks that each wording keeps the meaning.",
        "how-to/paraphrase.md",
    ),
    Stage("training", "ils", "Fine-tunes ROSALIA on the pairs.", "systems/rosalia.md"),
    Stage("inference", "ils", "Asks a trained model for masks and answers on a split of the dataset.",
          "systems/rosalia.md"),
    Stage("predict", "ils", "Asks a trained model about one image; also writes a DICOM segmentation.",
          "systems/rosalia.md"),
    Stage(
        "evaluation",
        "ils",
        "Scores ROSALIA and other models: gIoU, cIoU, N-Acc and text accuracy, with intervals.",
        "systems/evaluation.md",
    ),
    Stage(
        "semisyn_healthy",
        "semisyn",
        "Keeps the frontal X-rays that show no finding, with lungs and heart that can be used.",
        "systems/semisyn.md",
    ),
    Stage("semisyn_editing", "semisyn", "Puts findings into the healthy images, in the boxes that were drawn for them.",
          "systems/semisyn.md"),
    Stage("semisyn_realism", "semisyn", "Measures and scores the edited images.", "systems/semisyn.md"),
    Stage("semisyn_selection", "semisyn", "Chooses a configuration for each finding by the scores of all.",
          "systems/semisyn.md"),
    Stage(
        "semisyn_prompts",
        "semisyn",
        "Mines phrases of findings from the cohort's own reports, for a person to review.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_priors",
        "semisyn",
        "Gives the priors of place and size of each finding: the paper's, or fitted to boxes that people drew.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_placement",
        "semisyn",
        "Plans the jobs, each with a healthy image and a prompt, and draws the boxes of their findings.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_dataset",
        "semisyn",
        "Counts what became of every job, and exports images and boxes for detectors: YOLO, COCO, Hugging Face.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_cohort",
        "semisyn",
        "Exports edited films and their sources as a cohort for ILS, with reports and known lesion masks.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn",
        "semisyn",
        "Makes everything from healthy X-rays to the dataset, and measures what was made.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_detectors",
        "semisyn",
        "Trains detectors on people's boxes, on synthetic images and on controls, and predicts on the references.",
        "systems/semisyn.md",
    ),
    Stage(
        "semisyn_detection",
        "semisyn",
        "Scores detectors against people's boxes, with intervals by patient; compares runs, beside the paper's tables.",
        "systems/semisyn.md",
    ),
    Stage("semisyn_readers", "semisyn", "Makes pages on which experts tell edited X-rays from real ones.",
          "systems/semisyn.md"),
    Stage("semisyn_readers_merge", "semisyn", "Merges the readers' sheets: Table 7 and their agreement.",
          "systems/semisyn.md"),
    Stage("medground_sources", "medground", "Reads sources of images and masks into shards.", "systems/medground.md"),
    Stage("medground_regions", "medground", "Makes boxes with attributes from the masks' components."),
    Stage("medground_queries", "medground", "Words decidable queries about the regions."),
    Stage("medground_verification", "medground", "Rejects queries by form, by what their text says, and by a judge."),
    Stage("medground_dataset", "medground", "Joins the verified queries of all sources; proves that none was lost."),
    Stage("medground", "medground", "Makes everything from images and masks to the dataset.", "systems/medground.md"),
    Stage("radvlm_sources", "radvlm", "Reads facts, texts and images of each source into one form.",
          "systems/radvlm.md"),
    Stage("radvlm_filtered", "radvlm", "Takes out of reports and phrases what one image cannot bear out.",
          "systems/radvlm.md"),
    Stage("radvlm_conversations", "radvlm", "Makes conversations about one image's facts, and checks each statement.",
          "systems/radvlm.md"),
    Stage("radvlm_instructions", "radvlm", "Makes the samples of each mix: questions, answers, boxes, splits.",
          "systems/radvlm.md"),
    Stage("radvlm", "radvlm", "Makes everything from facts to the answers of a model that is tuned on a mix.",
          "systems/radvlm.md"),
    Stage("vlm_tuning", "vlm", "Fine-tunes vision-language models, by adapters or in full, on lines of a system.",
          "systems/medground.md"),
    Stage("vlm_answers", "vlm", "Asks tuned or published vision-language models, or reads answers made elsewhere.",
          "systems/medground.md"),
    Stage("vlm_ask", "vlm", "Asks a tuned vision-language model about one image, and replays the conversation.",
          "systems/radvlm.md"),
    Stage("medground_scoring", "medground",
          "Scores answers of models: IoU and Semantic Sensitivity, beside blind baselines and the paper.",
          "systems/medground.md"),
    Stage("radvlm_evaluation", "radvlm",
          "Scores answers in every task, beside blind answers, exchanged pictures, other models and the paper.",
          "systems/radvlm.md"),
    Stage("ablation", "reporting", "Gives recall and yield of every threshold set and grid point.", "systems/ils.md"),
    Stage("tables", "reporting", "Writes the paper's tables from this data."),
    Stage("figures", "reporting", "Draws the paper's figures from this data."),
    Stage("page", "reporting", "Writes `results/index.html`, the results on one page, and `costs.html`.",
          "reference/files.md"),
    Stage("privacy", "reporting", "Counts what was removed from texts and images because it identifies a person.",
          "how-to/privacy.md"),
    Stage("explain", "reporting", "Shows every decision about one study, and its reason."),
    Stage(
        "agreement",
        "reporting",
        "Scores masks, maps and boxes against human annotations (MS-CXR, VinDr, NIH, RSNA, COCO).",
        "how-to/agreement.md",
    ),
    Stage("review", "reporting", "Makes a page for each expert, who judges the test split.", "how-to/review.md"),
    Stage(
        "review_merge",
        "reporting",
        "Merges the experts' sheets: Tables 3 and 13, agreement, and the split without rejected pairs.",
        "how-to/review.md",
    ),
    Stage(
        "release",
        "reporting",
        "Packs a dataset version: Hugging Face, COCO, DICOM segmentations, datasheet, checksums.",
        "how-to/load.md",
    ),
    Stage("plan", "reporting", "Prints what all four systems would make and cost, and runs nothing.",
          "how-to/plan.md"),
    Stage("clean_old", "reporting", "Lists and removes results of earlier settings; with `-n` it only lists them.",
          "explanation/regeneration.md"),
)  # fmt: skip
"""In the order of their rules in the Snakefile."""


def engines(stage: str, settings: Section) -> list[str]:
    """Return the engines that the settings offer for a stage, the default first; none if there is no choice.

    The settings of a stage named <system>_<stage> lie at <system>.<stage>.
    """
    system, _, inner = stage.partition("_")
    section = getattr(settings, stage, None) or getattr(getattr(settings, system, None), inner, None)
    if not isinstance(section, Section) or "engine" not in section.declared():
        return []
    offered = get_args(get_type_hints(type(section))["engine"])
    return sorted(offered, key=lambda name: name != section.as_dict()["engine"])


def markdown(settings: Section) -> str:
    """Return docs/reference/stages.md; ``settings`` are the defaults."""
    head = (
        "# Stages\n\nGenerated by `make docs`; do not edit. Each stage is a target: `snakemake reports`. Bare\n"
        "`snakemake` ends at the page. Training and its followers, paraphrases, reviews and releases are run by name:\n"
        "`snakemake evaluation`. The first engine of a stage is its default.\n\n"
        "| stage | rules | what it does | engines |\n|---|---|---|---|\n"
    )
    rows = []
    for stage in STAGES:
        name = f"[`{stage.name}`](../{stage.page})" if stage.page else f"`{stage.name}`"
        offered = ", ".join(f"`{engine}`" for engine in engines(stage.name, settings))
        rows.append(f"| {name} | `rules/{stage.wing}/` | {stage.sentence} | {offered} |")
    return head + "\n".join(rows) + "\n"

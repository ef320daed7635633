"""Training: ROSALIA fine-tuned on the dataset, and the course of its losses and scores."""

from ils.core import run

PARTS = {
    "training_run": "training.stage.run_training",
    "training_untrained": "training.untrained.run_untrained",
    "training_curves": "training.curves.run_curves",
    "training_published": "training.published.run_published",
    "training_sam": "training.published.run_sam",
}
run.part(snakemake, PARTS[snakemake.rule], compute=run.compute_of(snakemake))

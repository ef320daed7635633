"""Inference: masks and answers of a trained model for a split, and sheets of some of its pictures."""

from ils.core import run

PARTS = {
    "inference_run": "inference.stage.run_split",
    "inference_paraphrased": "inference.stage.run_split",
    "inference_panels": "inference.panels.run_panels",
}
run.part(snakemake, PARTS[snakemake.rule], compute=run.compute_of(snakemake))

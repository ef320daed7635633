"""Evaluation: other models' outputs as predictions, the scores of a run, and all runs side by side."""

from ils.core import run

PARTS = {
    "evaluation_predictions": "evaluation.stage.run_predictions",
    "evaluation_run": "evaluation.stage.run_scores",
    "evaluation_persona": "evaluation.stage.run_scores",
    "evaluation_paraphrases": "evaluation.paraphrases.run",
    "evaluation_comparison": "evaluation.stage.run_comparison",
}
run.part(snakemake, PARTS[snakemake.rule])

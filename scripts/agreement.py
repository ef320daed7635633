"""Agreement: masks, maps and boxes against one file of people's boxes or masks, then the scores of all and figures."""

from ils.core import run

PARTS = {
    "agreement_images": "agreement.stage.run_images",
    "agreement_scores": "agreement.stage.run_scores",
    "agreement_charts": "agreement.charts.run_charts",
}
run.part(snakemake, PARTS[snakemake.rule])

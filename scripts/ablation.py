"""Ablation: recall and yield of every named threshold set and grid point, as a table, as curves and as a map."""

from ils.core import run

PARTS = {"ablation_table": "ablation.stage.run_table", "ablation_charts": "ablation.charts.run_charts"}
run.part(snakemake, PARTS[snakemake.rule])

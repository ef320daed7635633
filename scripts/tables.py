"""Tables: counts of the dataset, recall for every threshold set, and the embedded cohort beside its truth."""

from ils.core import run

PARTS = {
    "tables_counts": "tables.stage.run_counts",
    "tables_recall": "tables.stage.run_recall",
    "tables_truth": "tables.stage.run_truth",
}
run.part(snakemake, PARTS[snakemake.rule])

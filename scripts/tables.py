"""Tables: counts of the dataset, recall for every threshold set, and the embedded cohort beside its truth."""

from ils.core import run
from ils.tables import stage

make, kind = {
    "tables_counts": (stage.run_counts, stage.CountsOptions),
    "tables_recall": (stage.run_recall, stage.RecallOptions),
    "tables_truth": (stage.run_truth, stage.TruthOptions),
}[snakemake.rule]
options, _ = run.begin(snakemake, kind)
make(**snakemake.input, **snakemake.output, options=options)

"""Reports: findings of one shard; with a language model its answers, the map of places, the agreement of the rules."""

from ils.core import run

PARTS = {
    "reports_shard": "reports.stage.run_shard",
    "reports_structured": "reports.llm.structuring.run",
    "reports_terms": "reports.llm.terms.run",
    "reports_mapping": "reports.llm.mapping.run",
    "reports_read": "reports.understood.run",
    "reports_agreement": "reports.agreement.run",
}
how = {"execution": snakemake.config["reports"]["llm"]["execution"], "compute": run.compute_of(snakemake)}
run.part(snakemake, PARTS[snakemake.rule], **how)

"""Review: a page for each expert, and what their filled sheets say."""

from ils.core import run

PARTS = {"review_pages": "review.stage.run_pages", "review_sheets": "review.merge.run_sheets"}
run.part(snakemake, PARTS[snakemake.rule])

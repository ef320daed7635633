"""Paraphrases: the distinct instructions of a dataset, and their other wordings."""

from ils.core import run

PARTS = {
    "paraphrase_instructions": "paraphrase.instructions.run",
    "paraphrase_wordings": "paraphrase.stage.run",
}
run.part(snakemake, PARTS[snakemake.rule], execution=snakemake.config["paraphrase"]["llm"]["execution"])

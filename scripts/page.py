"""Page: pictures with reasons, the results on one page, and what the jobs took."""

from ils.core import run

PARTS = {"page_pictures": "page.gallery.run", "page_index": "page.stage.run", "page_costs": "page.costs.run"}
run.part(snakemake, PARTS[snakemake.rule])

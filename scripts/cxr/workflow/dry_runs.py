"""What a dry run says in our words, for snakemake_compat, which says it, and for the check of a cluster."""

LOCAL_RULES = "Rules that run where Snakemake was started: "
"""Beginning of the line in which a dry run for a cluster names its local rules."""

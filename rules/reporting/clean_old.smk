# Clean old: results of earlier settings are removed, by keep_fresh in the Snakefile before Snakemake plans any job.


rule clean_old:
    input:
        [],

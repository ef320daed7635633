# Clean old: this target removes results of earlier settings. keep_fresh in the Snakefile does so before the planning.


rule clean_old:
    input:
        [],

# Clean old: results of earlier settings, which keep_fresh (Snakefile) lists and removes when this target is planned.


rule clean_old:
    input:
        [],

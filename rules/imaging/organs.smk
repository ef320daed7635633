# Organs: masks of lungs and heart on the frame. Images that are not a complete chest X-ray are excluded.


rule organs_shard:
    input:
        **PLAN.engine_files["organs"],
        frames="results/frames/{shard}.h5",
    output:
        output="results/organs/{shard}.h5",
        excluded="results/organs/{shard}.excluded.parquet",
    log:
        "logs/organs/{shard}.log",
    benchmark:
        "results/benchmarks/organs/{shard}.tsv"
    group:
        PLAN.groups["organs"]
    conda:
        PLAN.environments["organs"]
    threads: 2
    resources:
        gpu=PLAN.gpus["organs"],
        mem_mb=megabytes(4000),
        runtime=minutes(15 if PLAN.gpus["organs"] else 40),
    params:
        **job("imaging.organs.segment_organs.run_shard", f"imaging.organs.{PLAN.engines['organs']}"),
        options=PLAN.options["organs"],
    message:
        "Organs of shard {wildcards.shard}: lungs and heart"
    script:
        "../../scripts/job.py"


# The engine chexmask needs a published table of 15 GB. It is read once here and split, not read once per shard.
rule organs_chexmask:
    input:
        table=PLAN.engine_sources["organs"].get("table", []),
        cohort=expand("results/cohort/{shard}.parquet", shard=PLAN.shards),
    output:
        output=expand("results/organs/chexmask/{shard}.csv.gz", shard=PLAN.shards),
    log:
        "logs/organs/chexmask.log",
    benchmark:
        "results/benchmarks/organs/chexmask.tsv"
    conda:
        "../../envs/organs-chexmask.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(6000),
        runtime=minutes(120),
    params:
        **job("imaging.organs.chexmask.split_table"),
    message:
        "Organs: split CheXmask's table by shard"
    script:
        "../../scripts/job.py"


rule organs:
    input:
        shards=expand("results/organs/{shard}.h5", shard=PLAN.shards),
        excluded="results/organs/excluded.parquet",

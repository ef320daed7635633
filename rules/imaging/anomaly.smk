# Anomaly: an edited image without lesions, and the anomaly map, its difference from the frame.


rule anomaly_shard:
    input:
        **PLAN.engine_files["anomaly"],
        frames="results/frames/{shard}.h5",
        organs="results/organs/{shard}.h5",
    output:
        output="results/anomaly/{shard}.h5",
        excluded="results/anomaly/{shard}.excluded.parquet",
    log:
        "logs/anomaly/{shard}.log",
    benchmark:
        "results/benchmarks/anomaly/{shard}.tsv"
    group:
        PLAN.groups["anomaly"]
    conda:
        PLAN.environments["anomaly"]
    threads: 2
    resources:
        gpu=PLAN.gpus["anomaly"],
        mem_mb=megabytes(8000),
        runtime=minutes(1440 if PLAN.gpus["anomaly"] else 30),  # hundreds of steps of a large net per image
    params:
        **job("imaging.anomaly.map_anomalies.run_shard", f"imaging.anomaly.{PLAN.engines['anomaly']}"),
        options=PLAN.options["anomaly"],
    message:
        "Anomaly maps of shard {wildcards.shard}: images without lesions, and their difference from the frames"
    script:
        "../../scripts/job.py"


rule anomaly:
    input:
        shards=expand("results/anomaly/{shard}.h5", shard=PLAN.shards),
        excluded="results/anomaly/excluded.parquet",

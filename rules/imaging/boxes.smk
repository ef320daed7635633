# Boxes: lesion boxes with confidences, detected on the frame.


rule boxes_shard:
    input:
        **PLAN.engine_files["boxes"],
        frames="results/frames/{shard}.h5",
    output:
        output="results/boxes/{shard}.parquet",
        excluded="results/boxes/{shard}.excluded.parquet",
    log:
        "logs/boxes/{shard}.log",
    benchmark:
        "results/benchmarks/boxes/{shard}.tsv"
    group:
        PLAN.groups["boxes"]
    conda:
        PLAN.environments["boxes"]
    threads: 2
    resources:
        gpu=PLAN.gpus["boxes"],
        mem_mb=megabytes(6000),
        runtime=minutes(240 if PLAN.gpus["boxes"] else 15),
    params:
        **job("imaging.boxes.detect_boxes.run_shard", f"imaging.boxes.{PLAN.engines['boxes']}"),
        options=PLAN.options["boxes"],
    message:
        "Lesion boxes of shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule boxes:
    input:
        shards=expand("results/boxes/{shard}.parquet", shard=PLAN.shards),
        excluded="results/boxes/excluded.parquet",

# Boxes: lesion boxes with confidences on the image.


rule boxes_shard:
    input:
        **ENGINE_FILES["boxes"],
        frames="results/frames/{shard}.h5",
    output:
        output="results/boxes/{shard}.parquet",
        excluded="results/boxes/{shard}.excluded.parquet",
    log:
        "logs/boxes/{shard}.log",
    benchmark:
        "results/benchmarks/boxes/{shard}.tsv"
    group:
        GROUPS["boxes"]
    conda:
        f"../envs/boxes-{OPTIONS['boxes']['engine']}.yaml"
    threads: 2
    resources:
        gpu=GPUS["boxes"],
        mem_mb=megabytes(6000),
        runtime=minutes(240 if GPUS["boxes"] else 15),
    params:
        options=OPTIONS["boxes"],
        code=code_digest("boxes.py", f"ils.boxes.{OPTIONS['boxes']['engine']}"),
    script:
        "../scripts/boxes.py"


rule boxes:
    input:
        shards=expand("results/boxes/{shard}.parquet", shard=SHARDS),
        excluded=expand("results/boxes/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/boxes/excluded.parquet",
    log:
        "logs/boxes/gather.log",
    benchmark:
        "results/benchmarks/boxes/gather.tsv"
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        code=code_digest("gather.py"),
    script:
        "../scripts/gather.py"

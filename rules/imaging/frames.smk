# Frames: decode the accepted images (one or all per study), apply the window, and fit them to 512 x 512 pixels.


rule frames_shard:
    input:
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/frames/{shard}.h5",
        excluded="results/frames/{shard}.excluded.parquet",
        corrected="results/frames/{shard}.corrected.parquet",
        files_read="results/cohort/files_read/frames/{shard}.parquet",
    log:
        "logs/frames/{shard}.log",
    benchmark:
        "results/benchmarks/frames/{shard}.tsv"
    group:
        "frames"
    conda:
        "../../envs/frames.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("imaging.frames.make_frames.run_shard"),
        options=PLAN.options["frames"],
    message:
        "Frames of shard {wildcards.shard}: decode images, apply the window, fit to 512 x 512"
    script:
        "../../scripts/job.py"


rule frames:
    input:
        shards=expand("results/frames/{shard}.h5", shard=PLAN.shards),
        excluded="results/frames/excluded.parquet",

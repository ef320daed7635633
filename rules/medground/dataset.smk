# MedGround's dataset: the verified queries of all sources, with baselines, pairs and the proof that nothing was lost.


rule medground_dataset_lines:
    input:
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
        images=expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        dropped=expand("results/medground/regions/{source}/{shard}.dropped.parquet", **PLAN.medground.all_shards),
        without=expand("results/medground/regions/{source}/{shard}.excluded.parquet", **PLAN.medground.all_shards),
        queries=expand("results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        unasked=expand("results/medground/queries/{source}/{shard}.unasked.parquet", **PLAN.medground.all_shards),
        accepted=expand("results/medground/verification/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        rejected=expand("results/medground/verification/{source}/{shard}.rejected.parquet", **PLAN.medground.all_shards),
    output:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        labels=expand(
            "results/medground/dataset/label_{kind}/{split}.jsonl",
            kind=PLAN.medground.options["dataset"]["labels"],
            split=PLAN.splits,
        ),
        sensitivity="results/medground/dataset/pairs.jsonl",
        units="results/medground/dataset/units.parquet",
        statistics="results/medground/dataset/statistics.tsv",
        counts="results/medground/dataset/conservation.tsv",
    log:
        "logs/medground/dataset/lines.log",
    benchmark:
        "results/benchmarks/medground/dataset/lines.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.dataset.make_dataset.run"),
        options=PLAN.medground.options["dataset"],
    message:
        "MedGround: the dataset"
    script:
        "../../scripts/job.py"


rule medground_dataset:
    input:
        rules.medground_dataset_lines.output,
        "results/medground/verification/passrate.tsv",
        PLAN.medground.unused_texts,

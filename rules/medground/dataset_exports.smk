# Exports of MedGround's dataset, what experts see of its test split (the pages are the stage review's), and the target of
# the system.


rule medground_dataset_units:
    input:
        lines="results/medground/dataset/test.jsonl",
        images=expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
    output:
        shown=temp("results/medground/dataset/shown.parquet"),
    log:
        "logs/medground/dataset/units.log",
    benchmark:
        "results/benchmarks/medground/dataset/units.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.dataset.audit_units.run"),
        options=PLAN.medground.options["audit_units"],
    message:
        "MedGround: queries and images for the experts"
    script:
        "../../scripts/job.py"


rule medground_dataset_export:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
        audit=PLAN.medground.votes if PLAN.settings.medground.dataset.audited else [],
    output:
        folder=directory("results/medground/dataset/export/{format}"),
    log:
        "logs/medground/dataset/export/{format}.log",
    benchmark:
        "results/benchmarks/medground/dataset/export/{format}.tsv"
    wildcard_constraints:
        format="messages|sharegpt|swift|coco|refcoco|hf",
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(120),
    params:
        **job("medground.dataset.export.run"),
        options=lambda wildcards: PLAN.medground.options["export"] | {"format": wildcards.format},
    message:
        "MedGround: export as {wildcards.format}"
    script:
        "../../scripts/job.py"


rule medground:
    input:
        rules.medground_dataset.input,
        rules.medground_dataset_chart.output,
        rules.medground_dataset_beside.output,
        rules.medground_dataset_tokens.output if PLAN.medground.tokenizer else [],
        rules.medground_dataset_gallery.output,
        expand("results/medground/dataset/export/{format}", format=PLAN.medground.formats),

# Dataset: instruction-answer pairs from findings and masks. The files, one per split, do not depend on the shards.


rule dataset_pairs:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        units=expand("results/masks/{{thresholds}}/{shard}.units.parquet", shard=PLAN.shards),
        studies=expand("results/masks/{{thresholds}}/{shard}.studies.parquet", shard=PLAN.shards),
    output:
        train="results/dataset/{thresholds}/train.jsonl",
        validate="results/dataset/{thresholds}/validate.jsonl",
        test="results/dataset/{thresholds}/test.jsonl",
        excluded="results/dataset/{thresholds}/excluded.parquet",
        # pairs that were not made, with reasons
        dropped="results/dataset/{thresholds}/dropped.parquet",
    log:
        "logs/dataset/{thresholds}/pairs.log",
    benchmark:
        "results/benchmarks/dataset/{thresholds}/pairs.tsv"
    group:
        "tables"
    conda:
        "../../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("ils.dataset.make_pairs.run"),
        options=PLAN.options["dataset"],
    message:
        "Instruction-answer pairs, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


# The dataset in the layout of the authors' release, for their training code (dataset.mimic_ils_layout, or by its path).
rule dataset_layout:
    input:
        train="results/dataset/{thresholds}/train.jsonl",
        validate="results/dataset/{thresholds}/validate.jsonl",
        test="results/dataset/{thresholds}/test.jsonl",
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
    output:
        layout=directory("results/dataset/{thresholds}/layout"),
    log:
        "logs/dataset/{thresholds}/layout.log",
    benchmark:
        "results/benchmarks/dataset/{thresholds}/layout.tsv"
    conda:
        "../../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(240),
    params:
        **job("ils.dataset.mimic_ils.write_layout"),
        pixels=PLAN.options["layout"]["pixels"],
    message:
        "Dataset in the layout of MIMIC-ILS, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


# Import of the authors' release for training and scoring, under the name `mimic_ils` in place of a threshold set.
rule dataset_mimic_ils:
    input:
        folder=PLAN.settings.dataset.mimic_ils or [],
    output:
        train="results/dataset/mimic_ils/train.jsonl",
        validate="results/dataset/mimic_ils/validate.jsonl",
        test="results/dataset/mimic_ils/test.jsonl",
        pictures="results/dataset/mimic_ils/pictures.tsv",
        masks="results/masks/mimic_ils/mimic_ils.h5",
        index="results/masks/mimic_ils/index.parquet",
    log:
        "logs/dataset/mimic_ils.log",
    benchmark:
        "results/benchmarks/dataset/mimic_ils.tsv"
    conda:
        "../../envs/dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),  # all packed masks and all lines of the authors' release
        runtime=minutes(240),
    params:
        **job("ils.dataset.mimic_ils.import_layout"),
        images=PLAN.options["imported"]["images"],
    message:
        "Import of a dataset in the layout of MIMIC-ILS"
    script:
        "../../scripts/job.py"


rule dataset:
    input:
        lines=expand("results/dataset/{thresholds}/{split}.jsonl", thresholds=PLAN.build, split=PLAN.splits),
        layout=expand("results/dataset/{thresholds}/layout", thresholds=PLAN.ils.layouts),
        stages=expand("results/{stage}/excluded.parquet", stage=STAGES[:-1]),
        excluded="results/dataset/excluded.parquet",

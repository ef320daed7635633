# Release: a version of a threshold set's dataset as one folder for other tools, without the withheld data.


rule release_tables:
    input:
        train="results/dataset/{thresholds}/train.jsonl",
        validate="results/dataset/{thresholds}/validate.jsonl",
        test="results/dataset/{thresholds}/test.jsonl",
        filtered=lambda wildcards: PLAN.settings.release.test.replace("{thresholds}", wildcards.thresholds) or [],
        salt=PLAN.settings.release.salt or [],
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
    output:
        tables=directory("results/release/.parts/{thresholds}/tables"),
    log:
        "logs/release/{thresholds}/tables.log",
    benchmark:
        "results/benchmarks/release/{thresholds}/tables.tsv"
    conda:
        "../../envs/release.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(480),
    params:
        **job("reporting.release.export_tables.run_tables"),
        options=PLAN.options["release"],
    message:
        "Release as Parquet, COCO and others, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule release_dicom:
    input:
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.splits),
        filtered=lambda wildcards: PLAN.settings.release.test.replace("{thresholds}", wildcards.thresholds) or [],
        cohort="results/cohort/{shard}.parquet",
        masks=["results/masks/{thresholds}/{shard}.h5"],
        frames=["results/frames/{shard}.h5"],
    output:
        segmentations=directory("results/release/.parts/{thresholds}/dicom_seg/{shard}"),
    log:
        "logs/release/{thresholds}/{shard}.log",
    benchmark:
        "results/benchmarks/release/{thresholds}/{shard}.tsv"
    group:
        "release"
    conda:
        "../../envs/release.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("reporting.release.dicom.run_shard"),
        options=PLAN.options["release_dicom"],
        thresholds=lambda wildcards: wildcards.thresholds,
    message:
        "Release of shard {wildcards.shard} as DICOM segmentations, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule release_package:
    input:
        tables="results/release/.parts/{thresholds}/tables",
        segmentations=expand("results/release/.parts/{{thresholds}}/dicom_seg/{shard}", shard=PLAN.shards),
        # this layout holds one image per study
        layout=["results/dataset/{thresholds}/layout"] if PLAN.settings.frames.per_study == "first" else [],
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.splits),
        filtered=lambda wildcards: PLAN.settings.release.test.replace("{thresholds}", wildcards.thresholds) or [],
        salt=PLAN.settings.release.salt or [],
        # tables of excluded images in the order of the stages
        excluded=[
            *expand("results/{stage}/excluded.parquet", stage=STAGES[:-2]),
            "results/masks/{thresholds}/excluded.parquet",
            "results/dataset/{thresholds}/excluded.parquet",
        ],
        dropped="results/dataset/{thresholds}/dropped.parquet",
        maps=expand("results/{stage}/{shard}.h5", stage=("frames", "organs", "anomaly", "anatomy"), shard=PLAN.shards),
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        weights=expand("results/weights/{artefact}.json", artefact=PLAN.weights.needed),
    output:
        package=directory("results/release/{thresholds}"),
    log:
        "logs/release/{thresholds}/package.log",
    benchmark:
        "results/benchmarks/release/{thresholds}/package.tsv"
    conda:
        "../../envs/release.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("reporting.release.package.run_package"),
        options=PLAN.options["release_package"],
        environments=lambda wildcards: read_environments(PLAN.options["release_package"]["engines"]),
        thresholds=lambda wildcards: wildcards.thresholds,
        codes={
            "cohort": rules.cohort_shards.params.code,
            "boxes": rules.boxes_shard.params.code,
            "dataset": rules.dataset_pairs.params.code,
        },
        taus=lambda wildcards: PLAN.sets[wildcards.thresholds],
    message:
        "Package of the release, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule release:
    input:
        expand("results/release/{thresholds}", thresholds=PLAN.build),
        expand("results/release/instructions/{mix}", mix=PLAN.settings.release.mixes),

# What MedGround's dataset is like: its language, and a gallery of queries with their verdicts.


rule medground_dataset_language:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        labels=rules.medground_dataset_lines.output.labels,
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
        entities="results/medground/dataset/entities.parquet" if PLAN.medground.entities else [],
    output:
        language=report(
            "results/medground/dataset/language.tsv",
            caption="../../report/medground_language.rst",
            category="10 MedGround",
            labels={"result": "language of the queries (table)"},
        ),
        words="results/medground/dataset/words.tsv",
    log:
        "logs/medground/dataset/language.log",
    benchmark:
        "results/benchmarks/medground/dataset/language.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("medground.dataset.language.run"),
        options=PLAN.medground.options["language"],
    message:
        "MedGround: the queries' language"
    script:
        "../../scripts/job.py"


rule medground_dataset_chart:
    input:
        language="results/medground/dataset/language.tsv",
    output:
        chart=report(
            "results/medground/dataset/language.png",
            caption="../../report/medground_language.rst",
            category="10 MedGround",
            labels={"result": "language of the queries (chart)"},
        ),
    log:
        "logs/medground/dataset/chart.log",
    benchmark:
        "results/benchmarks/medground/dataset/chart.tsv"
    localrule: True
    conda:
        "../../envs/figures.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(5),
    params:
        **job("medground.dataset.language_chart.run"),
        options=PLAN.medground.options["chart"],
    message:
        "MedGround: chart of the queries' language"
    script:
        "../../scripts/job.py"


rule medground_dataset_beside:
    input:
        statistics="results/medground/dataset/statistics.tsv",
        rates="results/medground/verification/passrate.tsv",
        images=expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
        excluded=expand("results/medground/sources/{source}/excluded.parquet", source=PLAN.medground.sources),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
    output:
        counted="results/medground/dataset/sources.tsv",
        beside=report(
            "results/medground/dataset/paper.tsv",
            caption="../../report/medground_paper.rst",
            category="10 MedGround",
            labels={"result": "the paper's Tables 1, 2, 5 and 6 beside ours"},
        ),
    log:
        "logs/medground/dataset/beside.log",
    benchmark:
        "results/benchmarks/medground/dataset/beside.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("medground.dataset.paper_comparison.run"),
        options=PLAN.medground.options["language"],
    message:
        "MedGround: the paper's tables beside ours"
    script:
        "../../scripts/job.py"


rule medground_dataset_gallery:
    input:
        accepted=expand("results/medground/verification/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        made=expand("results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        rejected="results/medground/verification/rejected.parquet",
        sensitivity="results/medground/dataset/pairs.jsonl",
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
    output:
        folder=directory("results/medground/dataset/gallery"),
    log:
        "logs/medground/dataset/gallery.log",
    benchmark:
        "results/benchmarks/medground/dataset/gallery.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("medground.dataset.gallery.run"),
        options=PLAN.medground.options["gallery"],
    message:
        "MedGround: gallery of queries"
    script:
        "../../scripts/job.py"

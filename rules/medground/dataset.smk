# MedGround's dataset: verified queries of all sources, baselines, pairs, tables about the dataset, and exports.


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
            kind=["generic", "class", "replaced"],
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
        **PLAN.medground.options["dataset"],
        source_names=list(PLAN.medground.sources),
    message:
        "MedGround: the dataset"
    script:
        "../../scripts/job.py"


rule medground_dataset:
    input:
        rules.medground_dataset_lines.output,
        "results/medground/verification/passrate.tsv",
        PLAN.medground.unused_texts,


# Clinical concepts in the queries, counted by a spaCy model if the setting names one instead of the lexicon.
rule medground_dataset_entities:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        labels=rules.medground_dataset_lines.output.labels,
        model=PLAN.medground.entities,
    output:
        entities="results/medground/dataset/entities.parquet",
    log:
        "logs/medground/dataset/entities.log",
    benchmark:
        "results/benchmarks/medground/dataset/entities.tsv"
    conda:
        "../../envs/medground_dataset-scispacy.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),  # the UMLS linker loads three million names
        runtime=minutes(120),
    params:
        **job("medground.dataset.scispacy_entities.run"),
        **PLAN.medground.options["entities"],
    message:
        "MedGround: clinical concepts of the queries"
    script:
        "../../scripts/job.py"


# Tables about the dataset: its language, the comparison with the paper, and a gallery of queries with verdicts.
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
        source_names=list(PLAN.medground.sources),
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
        **job("medground.charts.run_language"),
        dpi=PLAN.options["figures"]["dpi"],
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
        source_counts="results/medground/dataset/sources.tsv",
        comparison=report(
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
        source_names=list(PLAN.medground.sources),
    message:
        "MedGround: the paper's tables beside ours"
    script:
        "../../scripts/job.py"


rule medground_dataset_gallery:
    input:
        accepted=expand("results/medground/verification/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        queries=expand("results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
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
        source_names=list(PLAN.medground.sources),
        quality=JPEG_QUALITY,
        seed=PLAN.settings.seed,
    message:
        "MedGround: gallery of queries"
    script:
        "../../scripts/job.py"


# Token counts, if a tokenizer is named.
rule medground_dataset_tokens:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
    output:
        tokens="results/medground/dataset/tokens.tsv",
    log:
        "logs/medground/dataset/tokens.log",
    benchmark:
        "results/benchmarks/medground/dataset/tokens.tsv"
    localrule: True
    conda:
        "../../envs/vlm_answers-transformers.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("medground.dataset.tokens.run"),
        tokenizer=PLAN.medground.tokenizer,
    message:
        "MedGround: tokens of the queries"
    script:
        "../../scripts/job.py"


# Exports, the queries that experts judge on the pages of the stage review, and the target medground.
rule medground_dataset_units:
    input:
        lines="results/medground/dataset/test.jsonl",
        images=expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.sources),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.all_shards),
    output:
        units=temp("results/medground/dataset/shown.parquet"),
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
        **job("medground.dataset.gallery.run_units"),
        source_names=list(PLAN.medground.sources),
        queries=PLAN.settings.review.positives,
        seed=PLAN.settings.seed,
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
        options=PLAN.medground.options["export"],
        source_names=list(PLAN.medground.sources),
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

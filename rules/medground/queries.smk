# MedGround's queries: texts that refer to regions of an image, each with one provable answer.


rule medground_queries_shard:
    input:
        sources="results/medground/sources/{source}/{shard}.h5",
        images="results/medground/sources/{source}/images.parquet",
        regions="results/medground/regions/{source}/{shard}.parquet",
        shifted="results/medground/regions/{source}/{shard}.shifted.parquet",
        text_files=PLAN.medground.texts,
        model_answers=partial(PLAN.medground.answer_files, "queries", "told"),
    output:
        output="results/medground/queries/{source}/{shard}.jsonl",
        unasked="results/medground/queries/{source}/{shard}.unasked.parquet",
    log:
        "logs/medground/queries/{source}/{shard}.log",
    benchmark:
        "results/benchmarks/medground/queries/{source}/{shard}.tsv"
    wildcard_constraints:
        shard=r"\d+",
    group:
        PLAN.medground.group("queries")
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("medground.queries.make_queries.run_shard"),
        options=lambda wildcards: PLAN.medground.source_options("queries", wildcards.source),
    message:
        "MedGround: queries of the source {wildcards.source}, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule medground_queries_unused:
    input:
        text_files=PLAN.medground.texts,
        queries=expand(
            "results/medground/queries/{source}/{shard}.jsonl",
            source=PLAN.medground.queried,
            shard=PLAN.medground.shards,
        ),
        images=expand("results/medground/sources/{source}/images.parquet", source=PLAN.medground.queried),
        excluded=expand("results/medground/sources/{source}/excluded.parquet", source=PLAN.medground.queried),
    output:
        unused="results/medground/queries/unused.parquet",
    log:
        "logs/medground/queries/unused.log",
    benchmark:
        "results/benchmarks/medground/queries/unused.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("medground.queries.written_queries.run_unused"),
    message:
        "MedGround: texts of the table that no source can use"
    script:
        "../../scripts/job.py"


# Answers of the engine vllm, with one request per image. A changed parser repeats no request. A job that loads the
# model does all sources and shards. With a server, each source and shard has its own job.
rule medground_queries_told:
    input:
        sources=expand(
            "results/medground/sources/{source}/{shard}.h5", **PLAN.medground.model_jobs["queries"].wildcards
        ),
        images=expand(
            "results/medground/sources/{source}/images.parquet",
            source=PLAN.medground.model_jobs["queries"].wildcards["source"],
        ),
        regions=expand(
            "results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.model_jobs["queries"].wildcards
        ),
        prompts=PLAN.medground.prompts,
    output:
        answers=expand(
            "results/medground/queries/{source}/{shard}.told.jsonl", **PLAN.medground.model_jobs["queries"].wildcards
        ),
    log:
        f"logs/medground/queries/{PLAN.medground.model_jobs['queries'].name('{source}/{shard}')}.told.log",
    benchmark:
        f"results/benchmarks/medground/queries/{PLAN.medground.model_jobs['queries'].name('{source}/{shard}')}.told.tsv"
    wildcard_constraints:
        shard=r"\d+",
    conda:
        "../../envs/medground-vllm.yaml"
    threads: 8 if PLAN.medground.model_jobs["queries"].loads_model else 1  # the client of a server needs almost no CPU
    resources:
        gpu=PLAN.medground.model_jobs["queries"].gpus,
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.medground.model_jobs["queries"].loads_model else 4000),
        runtime=minutes(720),
    params:
        **job("medground.queries.ask_model.run"),
        options=partial(PLAN.medground.model_options, "queries"),
    message:
        "MedGround: the language model writes queries, log {log}"
    script:
        "../../scripts/job.py"


rule medground_queries:
    input:
        expand("results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        PLAN.medground.unused_texts,

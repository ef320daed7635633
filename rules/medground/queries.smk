# MedGround's queries: decidable, in words, about the regions of each image.


rule medground_queries_shard:
    input:
        sources="results/medground/sources/{source}/{shard}.h5",
        images="results/medground/sources/{source}/images.parquet",
        regions="results/medground/regions/{source}/{shard}.parquet",
        moved="results/medground/regions/{source}/{shard}.moved.parquet",
        given=PLAN.medground.given,
        told=PLAN.medground.answer_files("queries", "told"),
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
        options=lambda wildcards: PLAN.medground.of_source("queries", wildcards.source),
    message:
        "MedGround: queries of the source {wildcards.source}, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule medground_queries_unused:
    input:
        given=PLAN.medground.given,
        queries=PLAN.medground.parts("queries", "jsonl", exclude_stated=True),
        images=PLAN.medground.of_sources("sources", "images.parquet", exclude_stated=True),
        excluded=PLAN.medground.of_sources("sources", "excluded.parquet", exclude_stated=True),
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
        **job("medground.queries.given.run_unused"),
    message:
        "MedGround: given texts about images that no source has"
    script:
        "../../scripts/job.py"


# Answers of the engine vllm, once an image. Reading them again asks nothing again. A model in the job is loaded once for all
# sources and shards; the clients of a server are a job for each.
rule medground_queries_told:
    input:
        sources=expand("results/medground/sources/{source}/{shard}.h5", **PLAN.medground.asking("queries")),
        images=expand(
            "results/medground/sources/{source}/images.parquet", source=PLAN.medground.asking("queries")["source"]
        ),
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.asking("queries")),
        prompts=PLAN.medground.prompts["queries"],
    output:
        told=expand("results/medground/queries/{source}/{shard}.told.jsonl", **PLAN.medground.asking("queries")),
    log:
        f"logs/medground/queries/{PLAN.medground.asking_name('queries', '{source}/{shard}')}.told.log",
    benchmark:
        f"results/benchmarks/medground/queries/{PLAN.medground.asking_name('queries', '{source}/{shard}')}.told.tsv"
    wildcard_constraints:
        shard=r"\d+",
    conda:
        "../../envs/medground-vllm.yaml"
    threads: 8 if PLAN.medground.loading["queries"] else 1  # a server's client needs almost no CPU
    resources:
        gpu=PLAN.medground.gpus["queries"],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.medground.loading["queries"] else 4000),
        runtime=minutes(720),
    params:
        **job("medground.queries.ask_model.run"),
        options=PLAN.medground.to_ask("queries"),
    message:
        "MedGround: the language model words queries, log {log}"
    script:
        "../../scripts/job.py"


rule medground_queries:
    input:
        PLAN.medground.parts("queries", "jsonl"),
        PLAN.medground.unused,

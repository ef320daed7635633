# Reports by language models: the inputs of the engine vllm.


# Answers for the shard's texts; each distinct location is mapped once.
rule reports_structured:
    input:
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/reports/structured/{shard}.jsonl",
    log:
        "logs/reports/structured/{shard}.log",
    benchmark:
        "results/benchmarks/reports/structured/{shard}.tsv"
    conda:
        "../../envs/reports-vllm.yaml"
    threads: 8 if PLAN.settings.reports.llm.transport == "offline" else 1  # a server's client needs almost no CPU
    resources:
        gpu=PLAN.gpus["reports"],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.settings.reports.llm.transport == "offline" else 4000),
        runtime=minutes(720),
    params:
        **job("language.reports.llm.structuring.run"),
        options=PLAN.options["structuring"],
    message:
        "Reports of shard {wildcards.shard}: findings by the language model"
    script:
        "../../scripts/job.py"


rule reports_terms:
    input:
        structured=expand("results/reports/structured/{shard}.jsonl", shard=PLAN.shards),
    output:
        output="results/reports/terms.jsonl",
    log:
        "logs/reports/terms.log",
    benchmark:
        "results/benchmarks/reports/terms.tsv"
    localrule: True
    conda:
        "../../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("language.reports.llm.terms.run"),
    message:
        "Reports: distinct locations in the language model's findings"
    script:
        "../../scripts/job.py"


use rule reports_structured as reports_mapping with:
    input:
        terms="results/reports/terms.jsonl",
    output:
        output="results/reports/mapping.jsonl",
    log:
        "logs/reports/mapping.log",
    benchmark:
        "results/benchmarks/reports/mapping.tsv"
    params:
        **job("language.reports.llm.mapping.run"),
        options=PLAN.options["mapping"],
    message:
        "Reports: mapping of locations by the language model"

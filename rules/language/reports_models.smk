# Answers of language models, which are the inputs of the report engine vllm.


# Answers about the reports. If the job loads the model, one job does all shards. With a server, each shard has a job.
rule reports_structured:
    input:
        cohort=expand("results/cohort/{shard}.parquet", **PLAN.structuring.wildcards),
    output:
        output=expand("results/reports/structured/{shard}.jsonl", **PLAN.structuring.wildcards),
        files_read=f"results/cohort/files_read/reports_structured/{PLAN.structuring.name('{shard}')}.parquet",
    log:
        f"logs/reports/structured/{PLAN.structuring.name('{shard}')}.log",
    benchmark:
        f"results/benchmarks/reports/structured/{PLAN.structuring.name('{shard}')}.tsv"
    conda:
        "../../envs/reports-vllm.yaml"
    threads: 8 if PLAN.settings.llm.transport == "offline" else 1  # the client of a server needs almost no CPU
    resources:
        gpu=PLAN.gpus["reports"],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.settings.llm.transport == "offline" else 4000),
        runtime=minutes(720),
    params:
        **job("language.reports.llm.structure_shards.run"),
        options=PLAN.options["structuring"] | {"asking": digest_modules("language.reports.llm.questions")},
    message:
        f"Reports, {PLAN.structuring.name('shard {wildcards.shard}')}: findings by the language model"
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
        **job("language.reports.llm.terms.collect_terms"),
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

# RadVLM's conversations about one image, each made from the facts of the image and checked against them.


# Replies of a language model that the job loads, once for all sources and for all parts with the same model. The
# jobs of the parts build conversations from these replies. With a server, the jobs of the parts ask the server.
rule radvlm_conversations_told:
    input:
        files=PLAN.radvlm.conversations.model_inputs,
    output:
        replies=expand(
            "results/radvlm/conversations/{source}/{part}.told.jsonl", **PLAN.radvlm.conversations.jobs.wildcards
        ),
    log:
        f"logs/radvlm/conversations/{PLAN.radvlm.conversations.jobs.name('{source}/{part}')}.told.log",
    benchmark:
        f"results/benchmarks/radvlm/conversations/{PLAN.radvlm.conversations.jobs.name('{source}/{part}')}.told.tsv"
    wildcard_constraints:
        part="train|test",
    conda:
        "../../envs/radvlm_conversations-vllm.yaml"
    threads: 8
    resources:
        gpu=PLAN.radvlm.conversations.jobs.gpus,
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000),
        runtime=minutes(720),
    params:
        **job("radvlm.conversations.vllm.run"),
        options=PLAN.radvlm.conversations.model_options,
    message:
        "RadVLM: ask the language model for conversations, log {log}"
    script:
        "../../scripts/job.py"


rule radvlm_conversations_part:
    input:
        unpack(lambda wildcards: PLAN.radvlm.conversations.inputs(wildcards.source)),
        replies=(
            ["results/radvlm/conversations/{source}/{part}.told.jsonl"]
            if PLAN.radvlm.conversations.jobs.loads_model
            else []
        ),
    output:
        lines="results/radvlm/conversations/{source}/{part}.jsonl",
        excluded="results/radvlm/conversations/{source}/{part}.excluded.parquet",
        outcomes="results/radvlm/conversations/{source}/{part}.outcomes.tsv",
    log:
        "logs/radvlm/conversations/{source}/{part}.log",
    benchmark:
        "results/benchmarks/radvlm/conversations/{source}/{part}.tsv"
    wildcard_constraints:
        source="|".join(map(re.escape, PLAN.radvlm.conversations.kinds)) or "$^",
        part="train|test",
    conda:
        f"../../envs/radvlm_conversations-{PLAN.settings.radvlm.conversations.engine}.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(6000),
        runtime=minutes(480),
    params:
        **job(
            "radvlm.conversations.converse.run_part",
            f"radvlm.conversations.{PLAN.settings.radvlm.conversations.engine}",
        ),
        options=lambda wildcards: PLAN.radvlm.conversations.part_options(wildcards.source, wildcards.part),
    message:
        "RadVLM: conversations of the source {wildcards.source}, {wildcards.part}"
    script:
        "../../scripts/job.py"


rule radvlm_conversations_source:
    input:
        lines=expand("results/radvlm/conversations/{{source}}/{part}.jsonl", part=["train", "test"]),
        excluded=expand("results/radvlm/conversations/{{source}}/{part}.excluded.parquet", part=["train", "test"]),
        outcomes=expand("results/radvlm/conversations/{{source}}/{part}.outcomes.tsv", part=["train", "test"]),
    output:
        lines_out="results/radvlm/conversations/{source}/conversations.jsonl",
        excluded_out="results/radvlm/conversations/{source}/excluded.parquet",
        outcomes_out="results/radvlm/conversations/{source}/outcomes.tsv",
    log:
        "logs/radvlm/conversations/{source}.log",
    benchmark:
        "results/benchmarks/radvlm/conversations/{source}.tsv"
    wildcard_constraints:
        source="|".join(map(re.escape, PLAN.radvlm.conversations.kinds)) or "$^",
    localrule: True
    conda:
        "../../envs/radvlm_conversations-rules.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        **job("radvlm.conversations.converse.run_source"),
    message:
        "RadVLM: conversations of the source {wildcards.source}, all parts"
    script:
        "../../scripts/job.py"


rule radvlm_conversations:
    input:
        expand("results/radvlm/conversations/{source}/conversations.jsonl", source=PLAN.radvlm.conversations.kinds),

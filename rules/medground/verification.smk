# MedGround's verification of queries: checks of the form, rules that read the text, and a judge.


rule medground_verification_shard:
    input:
        sources="results/medground/sources/{source}/{shard}.h5",
        images="results/medground/sources/{source}/images.parquet",
        regions="results/medground/regions/{source}/{shard}.parquet",
        queries="results/medground/queries/{source}/{shard}.jsonl",
        confirm=partial(PLAN.medground.answer_files, "verification", "confirm"),
        select=partial(PLAN.medground.answer_files, "verification", "select"),
    output:
        output="results/medground/verification/{source}/{shard}.jsonl",
        rejected="results/medground/verification/{source}/{shard}.rejected.parquet",
    log:
        "logs/medground/verification/{source}/{shard}.log",
    benchmark:
        "results/benchmarks/medground/verification/{source}/{shard}.tsv"
    wildcard_constraints:
        shard=r"\d+",
    group:
        PLAN.medground.group("queries", "verification")
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("medground.verification.verify.run_shard"),
        options=lambda wildcards: PLAN.medground.source_options("verification", wildcards.source),
    message:
        "MedGround: verification of the source {wildcards.source}, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


# The judge vllm sees the answer (confirm) or must find it (select). A job that loads the model does all shards.
rule medground_verification_told:
    input:
        sources=expand(
            "results/medground/sources/{source}/{shard}.h5", **PLAN.medground.model_jobs["verification"].wildcards
        ),
        images=expand(
            "results/medground/sources/{source}/images.parquet",
            source=PLAN.medground.model_jobs["verification"].wildcards["source"],
        ),
        regions=expand(
            "results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.model_jobs["verification"].wildcards
        ),
        queries=expand(
            "results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.model_jobs["verification"].wildcards
        ),
        prompts=PLAN.medground.prompts,
    output:
        answers=expand(
            "results/medground/verification/{source}/{shard}.{asked}.jsonl",
            **PLAN.medground.model_jobs["verification"].wildcards,
        ),
    log:
        f"logs/medground/verification/{PLAN.medground.model_jobs['verification'].name('{source}/{shard}.{asked}')}.log",
    benchmark:
        f"results/benchmarks/medground/verification/{PLAN.medground.model_jobs['verification'].name('{source}/{shard}.{asked}')}.tsv"
    wildcard_constraints:
        shard=r"\d+",
        asked="confirm|select",
    conda:
        "../../envs/medground-vllm.yaml"
    threads: 8 if PLAN.medground.model_jobs["verification"].loads_model else 1
    resources:
        gpu=PLAN.medground.model_jobs["verification"].gpus,
        nodes=1,
        mem_mb=megabytes(64000 if PLAN.medground.model_jobs["verification"].loads_model else 4000),
        runtime=minutes(720),
    params:
        **job("medground.verification.ask_judge.run"),
        options=partial(PLAN.medground.model_options, "verification"),
    message:
        "MedGround: the language model judges queries, log {log}"
    script:
        "../../scripts/job.py"


rule medground_verification_rates:
    input:
        queries=expand("results/medground/queries/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        accepted=expand("results/medground/verification/{source}/{shard}.jsonl", **PLAN.medground.all_shards),
        parts=expand("results/medground/verification/{source}/{shard}.rejected.parquet", **PLAN.medground.all_shards),
    output:
        rates="results/medground/verification/passrate.tsv",
        grouped="results/medground/verification/passrate_groups.tsv",
        rejected="results/medground/verification/rejected.parquet",
    log:
        "logs/medground/verification/rates.log",
    benchmark:
        "results/benchmarks/medground/verification/rates.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("medground.verification.verify.run_rates"),
    message:
        "MedGround: pass rates of the verification"
    script:
        "../../scripts/job.py"


rule medground_verification:
    input:
        "results/medground/verification/passrate.tsv",

# MedGround's verification: form, rules that read the text, and a judge.


rule medground_verification_shard:
    input:
        sources="results/medground/sources/{source}/{shard}.h5",
        images="results/medground/sources/{source}/images.parquet",
        regions="results/medground/regions/{source}/{shard}.parquet",
        queries="results/medground/queries/{source}/{shard}.jsonl",
    output:
        output="results/medground/verification/{source}/{shard}.jsonl",
        rejected="results/medground/verification/{source}/{shard}.rejected.parquet",
    log:
        "logs/medground/verification/{source}/{shard}.log",
    benchmark:
        "results/benchmarks/medground/verification/{source}/{shard}.tsv"
    group:
        "medground"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("medground.verification.verify.run_shard"),
        options=lambda wildcards: PLAN.medground.of_source("verification", wildcards.source),
    message:
        "MedGround: verification of the source {wildcards.source}, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule medground_verification_rates:
    input:
        accepted=PLAN.medground.parts("verification", "jsonl"),
        parts=PLAN.medground.parts("verification", "rejected.parquet"),
    output:
        rates="results/medground/verification/passrate.tsv",
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

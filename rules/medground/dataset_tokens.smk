# Tokens of MedGround's queries, where a tokenizer is named.


rule medground_dataset_tokens:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
    output:
        counted="results/medground/dataset/tokens.tsv",
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
        options={"tokenizer": PLAN.medground.tokenizer},
    message:
        "MedGround: tokens of the queries"
    script:
        "../../scripts/job.py"

# Paraphrases: each distinct instruction of a dataset in other wordings, by personas. Asked for by name, or by a run.


rule paraphrase_instructions:
    input:
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=SPLITS),
    output:
        output="results/paraphrase/{thresholds}/instructions.jsonl",
    log:
        "logs/paraphrase/{thresholds}/instructions.log",
    benchmark:
        "results/benchmarks/paraphrase/{thresholds}/instructions.tsv"
    wildcard_constraints:
        thresholds="|".join(map(re.escape, DATA)),
    conda:
        "../envs/paraphrase-rules.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        code=code_digest("paraphrase.py", "ils.paraphrase.instructions"),
    script:
        "../scripts/paraphrase.py"


rule paraphrase_wordings:
    input:
        instructions="results/paraphrase/{thresholds}/instructions.jsonl",
    output:
        wordings="results/paraphrase/{thresholds}/wordings.jsonl",
        counts_table=report(
            "results/paraphrase/{thresholds}/counts.tsv",
            caption="../report/paraphrase.rst",
            category="1 From images to pairs",
            labels={"table": "paraphrases, {thresholds}"},
        ),
    log:
        "logs/paraphrase/{thresholds}/wordings.log",
    benchmark:
        "results/benchmarks/paraphrase/{thresholds}/wordings.tsv"
    wildcard_constraints:
        thresholds="|".join(map(re.escape, DATA)),
    conda:
        f"../envs/paraphrase-{OPTIONS['paraphrase']['engine']}.yaml"
    threads: 8 if GPUS["paraphrase"] else 1
    resources:
        gpu=GPUS["paraphrase"],
        nodes=1,  # else SLURM may take the GPUs of two
        mem_mb=megabytes(64000 if LLM_HERE else 4000),
        runtime=minutes(240 if OPTIONS["paraphrase"]["own"] else 10),
    params:
        options=OPTIONS["paraphrase"],
        code=code_digest("paraphrase.py", "ils.paraphrase.stage", f"ils.paraphrase.{OPTIONS['paraphrase']['engine']}"),
    script:
        "../scripts/paraphrase.py"


rule paraphrase:
    input:
        lambda wildcards: expand("results/paraphrase/{thresholds}/wordings.jsonl", thresholds=BUILD),

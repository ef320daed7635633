# Paraphrases: each distinct instruction of a dataset in the words of personas, for runs that use them or by path.


rule paraphrase_instructions:
    input:
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.splits),
    output:
        output="results/paraphrase/{thresholds}/instructions.jsonl",
    log:
        "logs/paraphrase/{thresholds}/instructions.log",
    benchmark:
        "results/benchmarks/paraphrase/{thresholds}/instructions.tsv"
    wildcard_constraints:
        thresholds="|".join(map(re.escape, PLAN.ils.data)),
    conda:
        "../../envs/paraphrase-rules.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("ils.paraphrase.make_paraphrases.run_instructions"),
    message:
        "Distinct instructions, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule paraphrase_wordings:
    input:
        instructions="results/paraphrase/{thresholds}/instructions.jsonl",
    output:
        wordings="results/paraphrase/{thresholds}/wordings.jsonl",
        counts_table=report(
            "results/paraphrase/{thresholds}/counts.tsv",
            caption="../../report/paraphrase.rst",
            category="1 From images to pairs",
            labels={"table": "paraphrases, {thresholds}"},
        ),
    log:
        "logs/paraphrase/{thresholds}/wordings.log",
    benchmark:
        "results/benchmarks/paraphrase/{thresholds}/wordings.tsv"
    wildcard_constraints:
        thresholds="|".join(map(re.escape, PLAN.ils.data)),
    conda:
        PLAN.environments["paraphrase"]
    threads: 8 if PLAN.gpus["paraphrase"] else 1
    resources:
        gpu=PLAN.gpus["paraphrase"],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.ils.paraphrasing.loads_model else 4000),
        runtime=minutes(240 if PLAN.options["paraphrase"]["language_model"] else 10),
    params:
        **job("ils.paraphrase.make_paraphrases.run", f"ils.paraphrase.{PLAN.engines['paraphrase']}"),
        options=PLAN.options["paraphrase"],
    message:
        "Paraphrases of the instructions, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule paraphrase:
    input:
        lambda wildcards: expand("results/paraphrase/{thresholds}/wordings.jsonl", thresholds=PLAN.build),

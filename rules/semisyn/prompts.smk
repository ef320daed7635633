# Prompts: phrases that describe findings in the cohort's reports, for people to read. No other rule uses them.


rule semisyn_prompts_mine:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        images="results/cohort/images.parquet",
        findings_file=PLAN.semisyn.findings_file,
        annotations=PLAN.semisyn.references["prompts"],
    output:
        prompts="results/semisyn/prompts/prompts.yaml",
        table="results/semisyn/prompts/prompts.tsv",
        counts="results/semisyn/prompts/counts.tsv",
    log:
        "logs/semisyn/prompts.log",
    benchmark:
        "results/benchmarks/semisyn/prompts.tsv"
    conda:
        "../../envs/semisyn_priors.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("semisyn.prompts.mine_prompts.run", *PLAN.semisyn.formats["prompts"]),
        options=PLAN.options["semisyn_prompts"],
    message:
        "Phrases of findings in the reports"
    script:
        "../../scripts/job.py"


rule semisyn_prompts:
    input:
        rules.semisyn_prompts_mine.output,

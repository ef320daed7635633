# Labels of the cohort's reports by a model, where radvlm.sources.labels names one.


rule radvlm_sources_labels:
    input:
        **PLAN.radvlm.labels.files,
        reports="results/reports/{shard}.jsonl",
    output:
        labels="results/radvlm/sources/own/{shard}.labels.jsonl",
    log:
        "logs/radvlm/sources/own/{shard}.labels.log",
    benchmark:
        "results/benchmarks/radvlm/sources/own/{shard}.labels.tsv"
    conda:
        f"../../envs/{PLAN.radvlm.labels.environment}.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("radvlm.sources.label_reports.run_shard", PLAN.radvlm.labels.module),
        options=PLAN.radvlm.labels.options,
    message:
        "RadVLM: labels of the reports of shard {wildcards.shard}"
    script:
        "../../scripts/job.py"

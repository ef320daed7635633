# Placement: plan the edits. Each edit has a healthy image, a prompt, and boxes for its finding.


rule semisyn_placement_plan:
    input:
        findings_file=PLAN.semisyn.findings_file,
        healthy="results/semisyn/healthy/images.parquet",
    output:
        plan="results/semisyn/placement/plan.parquet",
    log:
        "logs/semisyn/placement/plan.log",
    benchmark:
        "results/benchmarks/semisyn/placement/plan.tsv"
    localrule: True
    conda:
        "../../envs/semisyn_placement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("semisyn.placement.plan_jobs.run_plan"),
        options=PLAN.options["semisyn_placement_plan"],
    message:
        "Plan of the edits: image and prompt of each"
    script:
        "../../scripts/job.py"


rule semisyn_placement_shard:
    input:
        findings_file=PLAN.semisyn.findings_file,
        plan="results/semisyn/placement/plan.parquet",
        healthy="results/semisyn/healthy/images.parquet",
        frames="results/frames/{shard}.h5",
        priors="results/semisyn/priors/priors.yaml",
    output:
        output="results/semisyn/placement/{shard}.parquet",
        excluded="results/semisyn/placement/{shard}.excluded.parquet",
    log:
        "logs/semisyn/placement/{shard}.log",
    benchmark:
        "results/benchmarks/semisyn/placement/{shard}.tsv"
    group:
        "semisyn_placement"
    conda:
        "../../envs/semisyn_placement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(7),
    params:
        **job("semisyn.placement.plan_jobs.run_shard"),
        options=PLAN.options["semisyn_placement"],
    message:
        "Boxes of the findings, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule semisyn_placement:
    input:
        "results/semisyn/placement/plan.parquet",
        expand("results/semisyn/placement/{shard}.parquet", shard=PLAN.shards),
        "results/semisyn/placement/excluded.parquet",

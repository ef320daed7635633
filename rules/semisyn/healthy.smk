# Healthy: select frontal X-rays without a finding, into which findings are put later.


rule semisyn_healthy_shard:
    input:
        **PLAN.semisyn.healthy_files,
        cohort="results/cohort/{shard}.parquet",
        images="results/cohort/images.parquet",
        frames="results/frames/{shard}.h5",
        frames_excluded="results/frames/{shard}.excluded.parquet",
        organs="results/organs/{shard}.h5",
        organs_excluded="results/organs/{shard}.excluded.parquet",
    output:
        output="results/semisyn/healthy/{shard}.parquet",
        excluded="results/semisyn/healthy/{shard}.excluded.parquet",
    log:
        "logs/semisyn/healthy/{shard}.log",
    benchmark:
        "results/benchmarks/semisyn/healthy/{shard}.tsv"
    group:
        "semisyn_healthy"
    conda:
        f"../../envs/semisyn_healthy-{PLAN.options['semisyn_healthy']['classifier']}.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(7),
    params:
        **job(
            "semisyn.healthy.select_healthy.run_shard",
            f"semisyn.healthy.{PLAN.options['semisyn_healthy']['classifier']}",
        ),
        options=PLAN.options["semisyn_healthy"] | PLAN.semisyn.healthy_options,
    message:
        "Healthy X-rays of shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule semisyn_healthy_index:
    input:
        shards=expand("results/semisyn/healthy/{shard}.parquet", shard=PLAN.shards),
        excluded="results/semisyn/healthy/excluded.parquet",
    output:
        images="results/semisyn/healthy/images.parquet",
        funnel=report(
            "results/semisyn/healthy/funnel.tsv",
            caption="../../report/semisyn_funnel.rst",
            category="9 SemiSynCXR",
            labels={"result": "healthy X-rays (table)"},
        ),
    log:
        "logs/semisyn/healthy/index.log",
    benchmark:
        "results/benchmarks/semisyn/healthy/index.tsv"
    localrule: True
    conda:
        f"../../envs/semisyn_healthy-{PLAN.options['semisyn_healthy']['classifier']}.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("semisyn.healthy.select_healthy.run", f"semisyn.healthy.{PLAN.options['semisyn_healthy']['classifier']}"),
        options=PLAN.options["semisyn_healthy"] | PLAN.semisyn.healthy_options,
    message:
        "Healthy X-rays: table, and numbers left after each criterion"
    script:
        "../../scripts/job.py"


rule semisyn_healthy:
    input:
        rules.semisyn_healthy_index.output,

# Dataset: tables of all edits with their outcomes, images and boxes, and the datasheet.

SEMISYN_EDITED = {
    "edited": expand(
        "results/semisyn/editing/{engine}/chosen/{shard}.h5",
        engine=PLAN.semisyn.editing.chosen_engines,
        shard=PLAN.shards,
    ),
    "frames": expand("results/frames/{shard}.h5", shard=PLAN.shards),
    "cohort": expand("results/cohort/{shard}.parquet", shard=PLAN.shards),
}


rule semisyn_dataset_tables:
    input:
        plan="results/semisyn/placement/plan.parquet",
        placed=expand("results/semisyn/placement/{shard}.parquet", shard=PLAN.shards),
        not_placed="results/semisyn/placement/excluded.parquet",
        edited=SEMISYN_EDITED["edited"],
        edited_boxes=expand(
            "results/semisyn/editing/{engine}/chosen/{shard}.boxes.parquet",
            engine=PLAN.semisyn.editing.chosen_engines,
            shard=PLAN.shards,
        ),
        not_edited=expand(
            "results/semisyn/editing/{engine}/chosen/{shard}.excluded.parquet",
            engine=PLAN.semisyn.editing.chosen_engines,
            shard=PLAN.shards,
        ),
        healthy="results/semisyn/healthy/images.parquet",
    output:
        images="results/semisyn/dataset/images.parquet",
        boxes="results/semisyn/dataset/boxes.parquet",
        jobs="results/semisyn/dataset/jobs.parquet",
        conservation=report(
            "results/semisyn/dataset/conservation.tsv",
            caption="../../report/semisyn_conservation.rst",
            category="9 SemiSynCXR",
            labels={"result": "jobs (table)"},
        ),
        counts="results/semisyn/dataset/counts.tsv",
    log:
        "logs/semisyn/dataset/tables.log",
    benchmark:
        "results/benchmarks/semisyn/dataset/tables.tsv"
    conda:
        "../../envs/semisyn_dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("semisyn.dataset.job_tables.run"),
        options=PLAN.options["semisyn_dataset"],
    message:
        "SemiSynCXR: tables of the dataset, with the outcome of every edit"
    script:
        "../../scripts/job.py"


rule semisyn_dataset_sheet:
    input:
        images="results/semisyn/dataset/images.parquet",
        funnel="results/semisyn/healthy/funnel.tsv",
        conservation="results/semisyn/dataset/conservation.tsv",
        counts="results/semisyn/dataset/counts.tsv",
        priors="results/semisyn/priors/priors.yaml",
    output:
        sheet="results/semisyn/dataset/datasheet.md",
    log:
        "logs/semisyn/dataset/sheet.log",
    benchmark:
        "results/benchmarks/semisyn/dataset/sheet.tsv"
    localrule: True
    conda:
        "../../envs/semisyn_dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("semisyn.dataset.datasheet.run"),
        options={
            "source": PLAN.settings.cohort.source,
            "labels": PLAN.semisyn.labels,
        },
    message:
        "SemiSynCXR: datasheet of the dataset"
    script:
        "../../scripts/job.py"

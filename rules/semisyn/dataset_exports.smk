# Exports of the dataset in formats for detectors and as a cohort for ILS, and the target semisyn.


rule semisyn_dataset_export:
    input:
        **SEMISYN_EDITED,
        images="results/semisyn/dataset/images.parquet",
        boxes="results/semisyn/dataset/boxes.parquet",
        sheet="results/semisyn/dataset/datasheet.md",
    output:
        folder=directory("results/semisyn/dataset/{target}/{size}/{format}"),
    log:
        "logs/semisyn/dataset/{target}/{size}/{format}.log",
    benchmark:
        "results/benchmarks/semisyn/dataset/{target}/{size}/{format}.tsv"
    wildcard_constraints:
        target=PLAN.semisyn.export_options["target"],
        size="|".join(map(str, PLAN.semisyn.sizes)),
        format="yolo|coco|hf",
    conda:
        "../../envs/semisyn_dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("semisyn.dataset.export.run"),
        options=lambda wildcards: PLAN.semisyn.export_options | {"size": wildcards.size, "format": wildcards.format},
    message:
        "SemiSynCXR: export of the size {wildcards.size} as {wildcards.format}"
    script:
        "../../scripts/job.py"


rule semisyn_dataset_pictures:
    input:
        **SEMISYN_EDITED,
        images="results/semisyn/dataset/images.parquet",
        boxes="results/semisyn/dataset/boxes.parquet",
    output:
        sheet=report(
            "results/semisyn/dataset/sheet.jpg",
            caption="../../report/semisyn_sheet.rst",
            category="9 SemiSynCXR",
            labels={"result": "an image of each finding"},
        ),
    log:
        "logs/semisyn/dataset/pictures.log",
    benchmark:
        "results/benchmarks/semisyn/dataset/pictures.tsv"
    conda:
        "../../envs/semisyn_dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("semisyn.dataset.datasheet.run_samples"),
        options=PLAN.semisyn.export_options
        | {"size": PLAN.semisyn.sizes[-1], "format": "sheet", "pixels": "frame", "withhold": []},
    message:
        "SemiSynCXR: sample sheet with an image of each finding"
    script:
        "../../scripts/job.py"


rule semisyn_dataset_cohort:
    input:
        **SEMISYN_EDITED,
        images="results/semisyn/dataset/images.parquet",
        boxes="results/semisyn/dataset/boxes.parquet",
        healthy="results/semisyn/healthy/images.parquet",
    output:
        folder=directory("results/semisyn/dataset/cohort"),
    log:
        "logs/semisyn/dataset/cohort.log",
    benchmark:
        "results/benchmarks/semisyn/dataset/cohort.tsv"
    conda:
        "../../envs/semisyn_dataset.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("semisyn.dataset.export.run_cohort"),
        options=PLAN.semisyn.export_options
        | {"size": PLAN.semisyn.sizes[-1], "format": "cohort", "pixels": "frame", "withhold": []},
    message:
        "SemiSynCXR: edited images and their sources as a cohort with exact masks"
    script:
        "../../scripts/job.py"


rule semisyn_dataset:
    input:
        rules.semisyn_dataset_tables.output,
        rules.semisyn_dataset_pictures.output,
        expand(
            "results/semisyn/dataset/{target}/{size}/{format}",
            target=PLAN.semisyn.export_options["target"],
            size=PLAN.semisyn.sizes,
            format=["yolo", "coco", "hf"],
        ),


rule semisyn_cohort:
    input:
        rules.semisyn_dataset_cohort.output,


rule semisyn:
    input:
        rules.semisyn_healthy.input,
        rules.semisyn_dataset.input,
        rules.semisyn_realism.input,

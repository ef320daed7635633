# Reader study: pages on which experts tell edited from real X-rays, and the paper's Table 7 from their filled sheets.


rule semisyn_readers_units:
    input:
        annotations=lambda wildcards: wanted(
            PLAN.semisyn.references["readers"],
            "semisyn.readers.reference is empty, so there are no real images to read: name one of semisyn.references",
        ),
        plan="results/semisyn/placement/plan.parquet",
        edited=expand(
            "results/semisyn/editing/{engine}/chosen/{shard}.h5",
            shard=PLAN.shards,
            engine=PLAN.semisyn.editing.chosen_engines,
        ),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
    output:
        # for the organiser
        units="results/semisyn/readers/units.parquet",
        page_units=temp("results/semisyn/readers/shown.parquet"),
    log:
        "logs/semisyn/readers/units.log",
    benchmark:
        "results/benchmarks/semisyn/readers/units.tsv"
    conda:
        "../../envs/semisyn_readers.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("semisyn.readers.reading.run_units", *PLAN.semisyn.formats["readers"]),
        options=PLAN.options["semisyn_readers"],
    message:
        "Real and edited images for the reader study"
    script:
        "../../scripts/job.py"


rule semisyn_readers_pages:
    input:
        units="results/semisyn/readers/shown.parquet",
    output:
        # for the experts
        pages=expand("results/semisyn/readers/page_{expert}.html", expert=PLAN.settings.semisyn.readers.experts),
        # for the organiser
        items_table="results/semisyn/readers/items.parquet",
    log:
        "logs/semisyn/readers/pages.log",
    benchmark:
        "results/benchmarks/semisyn/readers/pages.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("reporting.review.unit_pages.run_pages"),
        options=PLAN.options["semisyn_readers_pages"] | {"label_overrides": PLAN.semisyn.form_labels},
    message:
        "Pages for the readers"
    script:
        "../../scripts/job.py"


rule semisyn_readers:
    input:
        rules.semisyn_readers_pages.output.pages,


rule semisyn_readers_answers:
    input:
        items_table="results/semisyn/readers/items.parquet",
        sheets=lambda wildcards: wanted(
            PLAN.semisyn.readers_sheets,
            "semisyn.readers.sheets is empty: give the readers' filled sheets, or their folder",
        ),
    output:
        answers="results/semisyn/readers/answers.parquet",
    log:
        "logs/semisyn/readers/answers.log",
    benchmark:
        "results/benchmarks/semisyn/readers/answers.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.review.unit_pages.run_answers"),
        options=PLAN.options["semisyn_readers_answers"] | {"label_overrides": PLAN.semisyn.form_labels},
    message:
        "The readers' answers"
    script:
        "../../scripts/job.py"


rule semisyn_readers_tables:
    input:
        units="results/semisyn/readers/units.parquet",
        answers="results/semisyn/readers/answers.parquet",
    output:
        table7=report(
            "results/semisyn/readers/table7.tsv",
            caption="../../report/semisyn_readers.rst",
            category="9 SemiSynCXR",
            subcategory="readers",
            labels={"result": "readers (Table 7)"},
        ),
        agreement="results/semisyn/readers/agreement.tsv",
    log:
        "logs/semisyn/readers/tables.log",
    benchmark:
        "results/benchmarks/semisyn/readers/tables.tsv"
    localrule: True
    conda:
        "../../envs/semisyn_readers.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("semisyn.readers.reading.run"),
        options=PLAN.options["semisyn_readers_tables"],
    message:
        "Table 7 and the readers' agreement"
    script:
        "../../scripts/job.py"


rule semisyn_readers_merge:
    input:
        rules.semisyn_readers_tables.output,

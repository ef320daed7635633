# Review of MedGround's queries: pages for the experts. The filled sheets give Table 7 and the votes on each query.


rule review_query_pages:
    input:
        units="results/medground/dataset/shown.parquet",
    output:
        # for the experts
        pages=expand("results/review/queries/page_{expert}.html", expert=PLAN.settings.review.experts),
        # for the organiser
        items_table="results/review/queries/items.parquet",
    log:
        "logs/review/queries/pages.log",
    benchmark:
        "results/benchmarks/review/queries/pages.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("reporting.review.unit_pages.run_pages"),
        options=PLAN.options["review_queries"],
    message:
        "Pages for the experts: queries of MedGround"
    script:
        "../../scripts/job.py"


rule review_query_answers:
    input:
        items_table="results/review/queries/items.parquet",
        sheets=lambda wildcards: wanted(
            PLAN.reporting.sheets,
            "review.sheets is empty: give the experts' filled sheets, or their folder",
        ),
    output:
        answers="results/review/queries/answers.parquet",
    log:
        "logs/review/queries/answers.log",
    benchmark:
        "results/benchmarks/review/queries/answers.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.review.unit_pages.run_answers"),
        options=PLAN.options["review_queries_answers"],
    message:
        "The experts' answers about queries"
    script:
        "../../scripts/job.py"


rule review_query_tables:
    input:
        units="results/medground/dataset/units.parquet",
        answers="results/review/queries/answers.parquet",
    output:
        # votes, for the setting medground.audit
        audit="results/review/queries/audit.parquet",
        table7=report(
            "results/review/queries/table7.tsv",
            caption="../../report/medground_audit.rst",
            category="10 MedGround",
            labels={"result": "audited queries (Table 7)"},
        ),
        agreed="results/review/queries/agreement.tsv",
    log:
        "logs/review/queries/tables.log",
    benchmark:
        "results/benchmarks/review/queries/tables.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.review.queries.run"),
        options=PLAN.options["review_queries_tables"],
    message:
        "Table 7 of the queries, and the experts' agreement"
    script:
        "../../scripts/job.py"

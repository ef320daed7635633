# Review: a self-contained page for each expert. The filled sheets give Tables 3 and 13 and the filtered split. The
# review of MedGround's queries is in review_queries.smk.


rule review_pages:
    input:
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.settings.review.split)[0],
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
        # masks from which decoys are made
        studies=expand("results/masks/{{thresholds}}/{shard}.studies.parquet", shard=PLAN.shards),
        mask_units=expand("results/masks/{{thresholds}}/{shard}.units.parquet", shard=PLAN.shards),
        organs=expand("results/organs/{shard}.h5", shard=PLAN.shards),
    output:
        # for the experts
        pages=expand("results/review/{{thresholds}}/page_{expert}.html", expert=PLAN.settings.review.experts),
        # for the organiser: the ids of the units, each expert's items, and which of them are decoys
        units="results/review/{thresholds}/units.parquet",
        items_table="results/review/{thresholds}/items.parquet",
        decoys="results/review/{thresholds}/decoys.parquet",
    log:
        "logs/review/{thresholds}/pages.log",
    benchmark:
        "results/benchmarks/review/{thresholds}/pages.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("reporting.review.make_pages.run_pages"),
        options=PLAN.options["review"],
    message:
        "Pages for the experts, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule review:
    input:
        expand(rules.review_pages.output.pages, thresholds=PLAN.reporting.reviewed_set)
        if PLAN.settings.review.items == "pairs"
        else expand("results/review/queries/page_{expert}.html", expert=PLAN.settings.review.experts),


rule review_sheets:
    input:
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.settings.review.split)[0],
        units="results/review/{thresholds}/units.parquet",
        items_table="results/review/{thresholds}/items.parquet",
        decoys="results/review/{thresholds}/decoys.parquet",
        sheets=lambda wildcards: wanted(
            PLAN.reporting.sheets,
            "review.sheets is empty: give the experts' filled sheets, or their folder",
        ),
    output:
        judgements="results/review/{thresholds}/judgements.parquet",
        expert_rates=report(
            "results/review/{thresholds}/experts.tsv",
            caption="../../report/review_experts.rst",
            category="6 Evaluation",
            subcategory="review, {thresholds}",
            labels={"result": "accepted units (Table 3)"},
        ),
        lesion_rates=report(
            "results/review/{thresholds}/lesions.tsv",
            caption="../../report/review_lesions.rst",
            category="6 Evaluation",
            subcategory="review, {thresholds}",
            labels={"result": "accepted units per lesion type (Table 13)"},
        ),
        agreement=report(
            "results/review/{thresholds}/agreement.tsv",
            caption="../../report/review_agreement.rst",
            category="6 Evaluation",
            subcategory="review, {thresholds}",
            labels={"result": "agreement of the experts"},
        ),
        reliability=report(
            "results/review/{thresholds}/reliability.tsv",
            caption="../../report/review_reliability.rst",
            category="6 Evaluation",
            subcategory="review, {thresholds}",
            labels={"result": "reliability of the experts, by decoys"},
        ),
        counts="results/review/{thresholds}/counts.tsv",
        rejected="results/review/{thresholds}/rejected.tsv",
        # ids of rejected pairs, for the setting evaluation.reviewed
        left_out="results/review/{thresholds}/left_out.txt",
        filtered=expand("results/review/{{thresholds}}/{split}.jsonl", split=PLAN.settings.review.split)[0],
    log:
        "logs/review/{thresholds}/sheets.log",
    benchmark:
        "results/benchmarks/review/{thresholds}/sheets.tsv"
    localrule: True
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        **job("reporting.review.merge.run_sheets"),
        options=PLAN.options["review_merge"],
    message:
        "Merge of the experts' sheets, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule review_merge:
    input:
        expand(rules.review_sheets.output, thresholds=PLAN.reporting.reviewed_set)
        if PLAN.settings.review.items == "pairs"
        else expand("results/review/queries/{table}", table=["audit.parquet", "table7.tsv", "agreement.tsv"]),

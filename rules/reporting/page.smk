# Page: results/index.html shows the results, with cases of each lesion type and the reason for each box. The measured
# costs are on the page results/costs.html.


rule page_pictures:
    input:
        findings=expand("results/masks/{thresholds}/{shard}.findings.parquet", thresholds=PLAN.built, shard=PLAN.shards),
        masks=expand("results/masks/{thresholds}/{shard}.h5", thresholds=PLAN.built, shard=PLAN.shards),
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        boxes=expand("results/boxes/{shard}.parquet", shard=PLAN.shards),
        maps=expand("results/{stage}/{shard}.h5", stage=("frames", "organs", "anomaly", "anatomy"), shard=PLAN.shards),
    output:
        parts=report(
            directory("results/page/parts"),
            patterns=["{thresholds}/{lesion}-{number}-{image,mask|boxes}.jpg"],
            caption="../../report/gallery.rst",
            category="4 Cases",
            subcategory="of each lesion type, {thresholds}",
            labels={"lesion": "{lesion}", "case": "{number}", "image": "{image}"},
        ),
        cases_lines="results/page/cases.jsonl",
    log:
        "logs/page/pictures.log",
    benchmark:
        "results/benchmarks/page/pictures.tsv"
    localrule: True
    conda:
        "../../envs/page.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("reporting.page.gallery.run"),
        options=PLAN.options["page"],
        thresholds=PLAN.build,
    message:
        "Pictures of the page: cases with the reasons of each box"
    script:
        "../../scripts/job.py"


# Results of other targets (ablation, evaluation) are shown if they exist before the run. They are no inputs, because
# `snakemake` without a target must not train a model again after a threshold has changed.
rule page_index:
    input:
        counts_table="results/tables/counts.tsv",
        splits_table="results/tables/splits.tsv",
        funnel_table="results/tables/funnel.tsv",
        recall_table="results/tables/recall.tsv",
        truth_table="results/tables/truth.tsv" if "truth" in PLAN.reporting.tables else [],
        reading_table="results/reports/reading.tsv",
        words_table="results/reports/unknown_words.tsv",
        cases_lines="results/page/cases.jsonl",  # stands for the folder of pictures, which has no digest
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        maps=expand("results/{stage}/{shard}.h5", stage=("frames", "organs", "anomaly", "anatomy"), shard=PLAN.shards),
        masks=expand("results/masks/{thresholds}/{shard}.h5", thresholds=PLAN.built, shard=PLAN.shards),
        test=expand("results/dataset/{thresholds}/{split}.jsonl", thresholds=PLAN.build, split=PLAN.ils.split),
        corrected=expand("results/frames/{shard}.corrected.parquet", shard=PLAN.shards),
        excluded=expand("results/{stage}/excluded.parquet", stage=("cohort", "frames", "reports")),
        manifests=expand("results/weights/{artefact}.json", artefact=[*PLAN.weights.needed, *PLAN.weights.models]),
    output:
        index="results/index.html",
        versions_table=report(
            "results/page/versions.tsv",
            caption="../../report/versions.rst",
            category="8 Versions",
            labels={"table": "code, settings, weights, packages"},
        ),
    log:
        "logs/page/index.log",
    benchmark:
        "results/benchmarks/page/index.tsv"
    localrule: True
    conda:
        "../../envs/page.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.page.render.run"),
        thresholds=PLAN.build,
        engines={stage: PLAN.engines[stage] for stage in ("reports", "organs", "anomaly", "anatomy", "boxes")},
        source=PLAN.settings.cohort.source,
        extras=lambda wildcards: digest_existing(PLAN.reporting.optional_results),
    message:
        "The page: results/index.html"
    script:
        "../../scripts/job.py"


rule page_costs:
    input:
        conservation_table="results/tables/conservation.tsv",
        index="results/index.html",
        # figures are made first, so that the table has their costs, but newer figures do not remake it
        figures=[ancient(str(path)) for path in rules.figures.input],
    output:
        page="results/costs.html",
        costs_table=report(
            "results/page/costs.tsv",
            caption="../../report/costs.rst",
            category="7 Costs",
            labels={"result": "stages (table)"},
        ),
        jobs_table="results/page/jobs.tsv",
    log:
        "logs/page/costs.log",
    benchmark:
        "results/benchmarks/page/costs.tsv"
    localrule: True
    conda:
        "../../envs/page.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("reporting.page.costs.run"),
        synthetic=PLAN.settings.cohort.source == "embedded",
    message:
        "Costs of the jobs"
    script:
        "../../scripts/job.py"


rule page:
    input:
        rules.page_pictures.output,
        rules.page_index.output,
        rules.page_costs.output,

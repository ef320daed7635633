# MedGround's scores of the answers of tuned and published models to the test split.


rule medground_scoring_run:
    input:
        answers="results/vlm/{run}/answers/medground_test.jsonl",
        lines="results/medground/dataset/test.jsonl",
        sampled=PLAN.vlm.draw_files("medground_test", "jsonl"),
        train="results/medground/dataset/train.jsonl",
        pairs="results/medground/dataset/pairs.jsonl",
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
        audit=PLAN.medground.votes,
    output:
        queries="results/medground/scoring/{run}/queries.parquet",
        scored="results/medground/scoring/{run}/scores.tsv",
        pairs_scored="results/medground/scoring/{run}/sensitivity.tsv",
    log:
        "logs/medground/scoring/{run}.log",
    benchmark:
        "results/benchmarks/medground/scoring/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.asked_runs("medground_test"))) or "$^",
    conda:
        "../../envs/medground_scoring.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.scoring.scores.run_scores"),
        options=PLAN.medground.options["scoring"],
    message:
        "MedGround: scores of {wildcards.run}"
    script:
        "../../scripts/job.py"


# Scores on sources that no training has seen. There are no experts' votes, as experts judge only the test split.
use rule medground_scoring_run as medground_scoring_zero_shot with:
    input:
        answers="results/vlm/{run}/answers/medground_zero_shot.jsonl",
        lines="results/medground/dataset/zero_shot.jsonl",
        sampled=PLAN.vlm.draw_files("medground_zero_shot", "jsonl"),
        train="results/medground/dataset/train.jsonl",
        pairs="results/medground/dataset/pairs.jsonl",
        regions=expand("results/medground/regions/{source}/{shard}.parquet", **PLAN.medground.all_shards),
    output:
        queries="results/medground/scoring/{run}/zero_shot/queries.parquet",
        scored="results/medground/scoring/{run}/zero_shot/scores.tsv",
        pairs_scored="results/medground/scoring/{run}/zero_shot/sensitivity.tsv",
    log:
        "logs/medground/scoring/{run}.zero_shot.log",
    benchmark:
        "results/benchmarks/medground/scoring/{run}.zero_shot.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.asked_runs("medground_zero_shot"))) or "$^",
    message:
        "MedGround: zero-shot scores of {wildcards.run}"


rule medground_scoring_comparison:
    input:
        scored=expand("results/medground/scoring/{run}/scores.tsv", run=PLAN.vlm.asked_runs("medground_test")),
        pairs_scored=expand(
            "results/medground/scoring/{run}/sensitivity.tsv", run=PLAN.vlm.asked_runs("medground_test")
        ),
        zero_shot=expand("results/medground/scoring/{run}/zero_shot/scores.tsv", run=PLAN.zero_shot_runs),
    output:
        comparison="results/medground/scoring/comparison.tsv",
    log:
        "logs/medground/scoring/comparison.log",
    benchmark:
        "results/benchmarks/medground/scoring/comparison.tsv"
    conda:
        "../../envs/medground_scoring.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("medground.scoring.scores.run_comparison"),
        runs=PLAN.vlm.asked_runs("medground_test"),
        zero_shot_runs=PLAN.zero_shot_runs,
        tau=PLAN.settings.medground.scoring.tau,
    message:
        "MedGround: scores of all runs, beside the paper's"
    script:
        "../../scripts/job.py"


rule medground_scoring_chart:
    input:
        comparison="results/medground/scoring/comparison.tsv",
    output:
        chart=report(
            "results/medground/scoring/scores.png",
            caption="../../report/medground_scores.rst",
            category="10 MedGround",
            labels={"result": "scores beside answers that read no query (chart)"},
        ),
    log:
        "logs/medground/scoring/chart.log",
    benchmark:
        "results/benchmarks/medground/scoring/chart.tsv"
    localrule: True
    conda:
        "../../envs/figures.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(5),
    params:
        **job("medground.charts.run_scores"),
        dpi=PLAN.options["figures"]["dpi"],
    message:
        "MedGround: chart of the scores"
    script:
        "../../scripts/job.py"


rule medground_scoring:
    input:
        "results/medground/scoring/comparison.tsv",
        "results/medground/scoring/scores.png",

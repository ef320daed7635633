# Priors of position and size of each finding: the paper's, or fitted to experts' boxes.


# Organs on the images of a reference whose images are not the cohort's
use rule organs_shard as semisyn_priors_organs with:
    input:
        **PLAN.engine_files["organs"],
        frames="results/semisyn/references/{reference}/frames.h5",
    output:
        output="results/semisyn/references/{reference}/organs.h5",
        excluded="results/semisyn/references/{reference}/organs.excluded.parquet",
    log:
        "logs/semisyn/priors/{reference}.organs.log",
    benchmark:
        "results/benchmarks/semisyn/priors/{reference}.organs.tsv"
    message:
        "Organs of the reference {wildcards.reference}"


rule semisyn_priors_fit:
    input:
        **PLAN.semisyn.prior_files,
    output:
        priors="results/semisyn/priors/priors.yaml",
        samples="results/semisyn/priors/samples.parquet",
        fits="results/semisyn/priors/fits.tsv",
        zones="results/semisyn/priors/zones.tsv",
        symmetry_table="results/semisyn/priors/symmetry.tsv",
    log:
        "logs/semisyn/priors/fit.log",
    benchmark:
        "results/benchmarks/semisyn/priors/fit.tsv"
    conda:
        "../../envs/semisyn_priors.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("semisyn.priors.write_priors.run", *PLAN.semisyn.prior_formats),
        options=PLAN.options["semisyn_priors"],
    message:
        "Priors of position and size"
    script:
        "../../scripts/job.py"


rule semisyn_priors_chart:
    input:
        findings_file=PLAN.semisyn.findings_file,
        priors="results/semisyn/priors/priors.yaml",
        samples="results/semisyn/priors/samples.parquet",
        fits="results/semisyn/priors/fits.tsv",
    output:
        figure=report(
            "results/semisyn/priors/priors.png",
            caption="../../report/semisyn_priors.rst",
            category="9 SemiSynCXR",
            labels={"result": "priors of place and size"},
        ),
    log:
        "logs/semisyn/priors/chart.log",
    benchmark:
        "results/benchmarks/semisyn/priors/chart.tsv"
    localrule: True
    conda:
        "../../envs/semisyn_priors.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("semisyn.priors.draw_priors.run_chart"),
        options=PLAN.options["semisyn_priors_chart"],
    message:
        "Figure of the priors"
    script:
        "../../scripts/job.py"


rule semisyn_priors:
    input:
        rules.semisyn_priors_fit.output,
        rules.semisyn_priors_chart.output,

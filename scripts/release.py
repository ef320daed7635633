"""Release: a dataset version in the layouts of other tools, and the package of them all."""

from ils.core import run

PARTS = {
    "release_tables": "release.stage.run_tables",
    "release_dicom": "release.dicom.run_shard",
    "release_package": "release.package.run_package",
}
run.part(snakemake, PARTS[snakemake.rule])

# PLAN holds all values that the rules take from the settings. A wrong setting ends the run here, before any job.
import re
import sys
from functools import partial

sys.path.insert(0, str(Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent / "scripts"))

from cxr.base.errors import UserError
from cxr.base.exclusions import STAGES
from cxr.base.runner import announce_runner
from cxr.language.reports.outcome_summary import print_summary
from cxr.semisyn.shared import print_shortfalls
from cxr.workflow.code_digest import load_digests, save_digests
from cxr.workflow.folder import refuse_unwritable
from cxr.workflow.freshness import keep_fresh
from cxr.reporting.settings import JPEG_QUALITY
from cxr.workflow.jobs import digest_existing, digest_modules, grow_with_tries, job, warning_options
from cxr.workflow.old_files import OldFiles
from cxr.workflow.params import cohort_options
from cxr.workflow.plan import Plan
from cxr.workflow.plan_reporting import read_environments
from cxr.workflow.settings import SettingsError, with_defaults
from cxr.workflow.snakemake_compat import (
    default_resources,
    store_records_in_results,
    refuse_missing_conda,
    register_serial_groups,
    take_only_target,
    show_full_dry_runs,
    name_local_rules,
    explain_locks,
    print_group_errors,
    use_all_cores,
    when_planned,
)
from cxr.workflow.start import describe_unknown_name, start_run

# Digests of code are stored, because every job of a cluster reads the Snakefile and would compute them again.
load_digests(Path(".snakemake") / "cxr-ils-digests.json")

try:
    refuse_unwritable(Path.cwd(), (".snakemake",))
    refuse_missing_conda(workflow)
    config.update(with_defaults(config))  # jobs read the section compute from config
    PLAN = Plan(config, workflow.config_settings.configfiles)
except (SettingsError, UserError) as error:
    sys.exit(f"cxr-ils: {error}")

take_only_target(workflow)
announce_runner()
register_serial_groups(workflow)
use_all_cores(workflow)
print_group_errors()
explain_locks()

# The resources of a rule grow with each try of its job, up to the limits that the settings give.
minutes = partial(grow_with_tries, most=PLAN.settings.compute.max_runtime)
megabytes = partial(grow_with_tries, most=PLAN.settings.compute.max_memory_mb)


def wanted(files, sentence):
    """Return ``files``, the input of a requested target. If there are none, end with a sentence before any job."""
    return files or sys.exit(f"cxr-ils: {sentence}")


wildcard_constraints:
    # only digits, so that results/masks/<threshold set>/findings.parquet is never taken for a shard
    shard=r"\d+",
    # only declared threshold sets, so that Snakemake refuses a misspelt name
    thresholds="|".join(map(re.escape, PLAN.sets)),
    source="|".join(PLAN.medground.sources),

"""Read the request of ``snakemake explain``. Every start of Snakemake loads this module, so it imports little."""

import hashlib
import re
from pathlib import Path
from urllib.parse import quote

from cxr.base.errors import UserError

LONGEST_NAME = 200
_PERIOD = re.compile(r"(.+?)\1{17,}$", re.DOTALL)


def page_name(study: str) -> str:
    """Return the name of a study's page: its id, with special characters of Snakemake, shells or browsers as %XX.

    A name that is too long for a file, or so repetitive that Snakemake takes it for an endless wildcard, is a digest.
    """
    name = re.sub(r"[^\w.-]", lambda match: quote(match.group(), safe=""), study)
    if len(name.encode()) > LONGEST_NAME or _PERIOD.search(name):
        return hashlib.blake2b(study.encode(), digest_size=16).hexdigest()
    return name


def asked(config: dict, results: Path) -> dict[str, str]:
    """Return the study that ``snakemake explain --config`` was given, its page and the state of the results.

    Without a study they are "".

    Raises UserError for a study that the cohort does not have, or a table of it that cannot be read.
    """
    study_value = config.get("study", "")
    study = str(study_value)
    if not study:
        return {"study": "", "held": "", "page": ""}
    from cxr.base.errors import StoreError  # loads HDF5 and polars, only if a study was asked for
    from cxr.reporting.explain.study import held, known

    try:
        known(results, study, number=not isinstance(study_value, str))
    except StoreError as error:
        raise UserError(str(error)) from None
    return {"study": study, "held": held(results), "page": page_name(study)}

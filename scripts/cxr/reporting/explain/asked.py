"""What ``snakemake explain`` was asked. Every start of Snakemake reads this module, so it imports next to nothing."""

import hashlib
import re
from pathlib import Path
from urllib.parse import quote

from cxr.base.errors import UserError

LONGEST_NAME = 200
_PERIOD = re.compile(r"(.+?)\1{17,}$", re.DOTALL)


def page_name(study: str) -> str:
    """Return the name of a study's page: its id, with what Snakemake, shells or browsers read otherwise as %XX.

    A name that is too long for a file, or repeats itself so that Snakemake takes it for endless, is a digest.
    """
    name = re.sub(r"[^\w.-]", lambda found: quote(found.group(), safe=""), study)
    if len(name.encode()) > LONGEST_NAME or _PERIOD.search(name):
        return hashlib.blake2b(study.encode(), digest_size=16).hexdigest()
    return name


def asked(config: dict, results: Path) -> dict[str, str]:
    """Return the study that ``snakemake explain --config`` was given, its page and the state of the results.

    Without a study they are "".

    Raises UserError for a study that the cohort does not have, or a table of it that cannot be read.
    """
    given = config.get("study", "")
    study = str(given)
    if not study:
        return {"study": "", "held": "", "page": ""}
    from cxr.base.errors import StoreError  # HDF5 and polars, for who asks
    from cxr.reporting.explain.study import held, known

    try:
        known(results, study, number=not isinstance(given, str))
    except StoreError as error:
        raise UserError(str(error)) from None
    return {"study": study, "held": held(results), "page": page_name(study)}

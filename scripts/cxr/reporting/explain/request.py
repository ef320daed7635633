"""Read the study requested by ``snakemake explain``. Snakemake always imports this module, so it must load fast."""

import hashlib
import re
from pathlib import Path
from urllib.parse import quote

from cxr.base.errors import UserError

MAX_NAME_BYTES = 200
_REPETITION = re.compile(r"(.+?)\1{17,}$", re.DOTALL)


def page_name(study: str) -> str:
    """Return the file name of a study's page: its id, in which special characters, such as "/", are written as %XX.

    The name is a digest of the id if it would be too long, or repeat one part so often that Snakemake refuses it.
    """
    name = re.sub(r"[^\w.-]", lambda match: quote(match.group(), safe=""), study)
    if len(name.encode()) > MAX_NAME_BYTES or _REPETITION.search(name):
        return hashlib.blake2b(study.encode(), digest_size=16).hexdigest()
    return name


def read_request(config: dict, results: Path) -> dict[str, str]:
    """Return {"study", "page", "results_digest"}: the id of the study that ``snakemake explain --config study=<id>``
    requests, the name of its page, and :func:`cxr.reporting.explain.study.results_digest`.

    All values are "" if no study is requested. Raises UserError for a study that the cohort does not have, or for a
    cohort table that cannot be read.
    """
    study_value = config.get("study", "")
    study = str(study_value)
    if not study:
        return {"study": "", "results_digest": "", "page": ""}
    from cxr.base.errors import StoreError
    from cxr.reporting.explain.study import find_study_rows, results_digest  # slow: loads HDF5 and polars

    try:
        find_study_rows(results, study, is_number=not isinstance(study_value, str))
    except StoreError as error:
        raise UserError(str(error)) from None
    return {"study": study, "results_digest": results_digest(results), "page": page_name(study)}

"""What ``snakemake explain`` was asked. Every start of Snakemake reads this module, so it imports next to nothing."""

from pathlib import Path

from ils.core.run import UserError


def asked(config: dict, results: Path) -> dict[str, str]:
    """Return the study that ``snakemake explain --config`` was given and the state of the results; "" for none.

    Raises UserError for a study that the cohort does not have, or a table of it that cannot be read.
    """
    given = config.get("study", "")
    study = str(given)
    if not study:
        return {"study": "", "held": ""}
    from ils.core.store import StoreError  # HDF5 and polars, for who asks
    from ils.explain.study import held, known

    try:
        known(results, study, number=not isinstance(given, str))
    except StoreError as error:
        raise UserError(str(error)) from None
    return {"study": study, "held": held(results)}

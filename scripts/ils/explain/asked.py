"""What ``snakemake explain`` was asked. Every start of Snakemake reads this module, so it imports next to nothing."""

from pathlib import Path


def asked(config: dict, results: Path) -> dict[str, str]:
    """Return the study that ``snakemake explain --config`` was given and the state of the results; "" for none.

    Raises UserError for a study that the cohort does not have.
    """
    given = config.get("study", "")
    study = str(given)
    if not study:
        return {"study": "", "held": ""}
    from ils.explain.study import held, known  # HDF5 and polars, for who asks

    known(results, study, number=not isinstance(given, str))
    return {"study": study, "held": held(results)}

"""No patient is both learnt and tested: the check of all sets of images, before any training."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import schema
from cxr.base.tables import read_table, write_table
from cxr.semisyn.detectors.columns import ROLES, TRAINED
from cxr.semisyn.references import TRAIN, Reference, load, patients_of, read_patients, refuse_two_roles

SYNTHETIC = "synthetic"
"""Name of the synthetic images' sources among the sets; no reference has it (settings)."""


@dataclass(frozen=True)
class RolesOptions:
    """What the settings tell of each reference that a run is trained on or scored against; the findings."""

    references: Sequence[dict]
    findings: Sequence[str]


def run(
    *, annotations: list[str], patients: list[str], output: str, options: RolesOptions, images: str | Sequence = ()
) -> None:
    """Write the table :data:`ROLES`.

    ``annotations``: the references' files, by what ``options`` says of them; ``images``: the dataset's table of images,
    where a run has synthetic ones; ``patients``: tables of image_id and subject_id. Raises UserError for a patient in
    sets of two roles.
    """
    held = {told["name"]: load(Reference(**told), options.findings) for told in options.references}
    roles = {told["name"]: told["role"] for told in options.references}
    seen = {name: sorted(of.seen) for name, of in held.items()}
    if images:
        table = read_table(images).filter(pl.col("subset") == TRAINED)
        seen[SYNTHETIC], roles[SYNTHETIC] = sorted(set(table["image_id"])), TRAIN
    tables = read_patients([patients] if isinstance(patients, str) else patients)
    patient = patients_of({image for of in seen.values() for image in of}, tables)
    refuse_two_roles(seen, roles, patient)
    rows = []
    for name, of in seen.items():
        boxes = len(held[name].boxes) if name in held else None
        left_out = json.dumps(held[name].left_out, sort_keys=True) if name in held else ""
        rows.append((name, roles[name], len(of), len({patient[image] for image in of}), boxes, left_out))
    write_table(output, pl.DataFrame(rows, schema=schema(ROLES), orient="row"), ROLES)

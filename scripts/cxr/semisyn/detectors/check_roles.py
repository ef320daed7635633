"""Check before any training that no patient is in both the training and the test images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import schema
from cxr.base.tables import read_table, write_table
from cxr.semisyn.detectors.columns import ROLES, TRAIN_SUBSET
from cxr.semisyn.references import TRAIN, Reference, map_patients, read_patients, read_reference, refuse_two_roles

SYNTHETIC = "synthetic"
"""Name of the set of source images of the synthetic ones; the settings forbid it for references."""


@dataclass(frozen=True)
class RolesOptions:
    """Settings of the references that a run is trained on or scored against, and the findings."""

    references: Sequence[dict]
    findings: Sequence[str]


def run(
    *, annotations: list[str], patients: list[str], output: str, options: RolesOptions, images: str | Sequence = ()
) -> None:
    """Write the table :data:`ROLES`.

    ``annotations``: unused, the paths are in ``options``; ``images``: the dataset's image table, if a run has synthetic
    images; ``patients``: tables with image_id and subject_id. Raises UserError for a patient in sets of two roles.
    """
    boxes_by_reference = {
        settings["name"]: read_reference(Reference(**settings), options.findings) for settings in options.references
    }
    roles = {settings["name"]: settings["role"] for settings in options.references}
    images_by_set = {name: sorted(boxes.image_ids) for name, boxes in boxes_by_reference.items()}
    if images:
        table = read_table(images).filter(pl.col("subset") == TRAIN_SUBSET)
        images_by_set[SYNTHETIC], roles[SYNTHETIC] = sorted(set(table["image_id"])), TRAIN
    tables = read_patients([patients] if isinstance(patients, str) else patients)
    patient = map_patients({image for image_ids in images_by_set.values() for image in image_ids}, tables)
    refuse_two_roles(images_by_set, roles, patient)
    rows = []
    for name, image_ids in images_by_set.items():
        boxes = len(boxes_by_reference[name].boxes) if name in boxes_by_reference else None
        left_out = json.dumps(boxes_by_reference[name].excluded, sort_keys=True) if name in boxes_by_reference else ""
        rows.append((name, roles[name], len(image_ids), len({patient[image] for image in image_ids}), boxes, left_out))
    write_table(output, pl.DataFrame(rows, schema=schema(ROLES), orient="row"), ROLES)

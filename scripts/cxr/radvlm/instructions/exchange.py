"""Pictures of other patients for the samples of test: does a model look at the picture at all?"""

from collections.abc import Iterable, Mapping

from cxr.base.seeds import stable_hash


def exchanged(images: Iterable[Mapping], seed: int) -> dict[tuple[str, str], str]:
    """Return {(source, image): an image of another patient of the source with the same view}, a stable pairing.

    ``images``: rows of one split with source, image_id, subject_id, view. Patients of a view stand in a drawn order,
    and each has images of the next one. An image without another patient of its view has none.
    """
    groups: dict[tuple, dict[str, set[str]]] = {}
    for row in images:
        patients = groups.setdefault((row["source"], row["view"]), {})
        patients.setdefault(row["subject_id"], set()).add(row["image_id"])
    partner_by_image = {}
    for (source, view), patients in groups.items():
        order = sorted(patients, key=lambda name: stable_hash(seed, "exchanged", source, view, name))
        if len(order) < 2:
            continue
        for at, name in enumerate(order):
            partner_ids = sorted(patients[order[(at + 1) % len(order)]])
            for place, image_id in enumerate(sorted(patients[name])):
                partner_by_image[source, image_id] = partner_ids[place % len(partner_ids)]
    return partner_by_image

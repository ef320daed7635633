"""Compose the texts of a package: the card (README.md) and the datasheet (DATASHEET.md)."""

from collections.abc import Sequence

import yaml

from cxr.base.vocabulary import LESIONS
from cxr.reporting.release.parquet import CONFIGS, SPLIT_NAMES, card_features

WITHHELD = {
    "pixels": "pixels: the images (column `image` of the config `images`)",
    "report_text": "report text: `section_content` (the authors' layout keeps the key, with an empty text)",
    "ids": "identifiers: `subject_id`, `study_id`, `image_id`, `mask_id`, the study in `pair_id` and in names of files "
    "are keyed digests; there are no DICOM segmentations, because these refer to images by their UIDs",
}
CONTENTS = (
    ("pairs, and the images' geometry, for `datasets.load_dataset`", "`data/`, `images/`"),
    ("COCO, with run lengths", "`coco/`"),
    ("DICOM segmentations in the pixels of each X-ray", "`dicom_seg/`"),
    ("the layout of the authors' release", "`authors/`"),
    ("counts, licences, limits, thresholds, digests", "[DATASHEET.md](DATASHEET.md)"),
    ("the same for machines", "`croissant.json`, `ro-crate-metadata.json`"),
    ("checksums: `sha256sum --check SHA256SUMS`", "`SHA256SUMS`"),
)
LIMITS = (
    "These masks are not human annotations. In the paper, all of four experts accepted 90.1 % of the positive units of "
    "the published dataset's test split; that figure does not hold for this package.",
    "A mask shows where an anomaly map, a detector and a report agree. Inference of a lesion type is limited by what "
    "an X-ray shows: pneumonia, atelectasis, edema and other consolidation often look alike.",
    "There is one source cohort: images, reports and their wording come from one place. A model may learn its habits.",
    "Reports mention what was useful at the time: a lesion that no report mentions may be present.",
    "Negative pairs rest on a report's words or silence and on the absence of a mask, not on a search for the lesion.",
    "This is not a medical device. Do not use it for patient care.",
)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def count_rows(counts: dict) -> list[list]:
    """Return table rows with the size of each split."""
    names = ("pairs", "studies", "subjects", "images", "masks")
    return [[split, *(counts[split][name] for name in names)] for split in SPLIT_NAMES]


def lesion_rows(counts: dict) -> list[list]:
    """Return table rows with each lesion type's positive and negative pairs per split."""
    return [
        [lesion, *(counts[split][sign].get(lesion, 0) for split in SPLIT_NAMES for sign in ("positive", "negative"))]
        for lesion in LESIONS
    ]


def _size_category(pairs: int) -> str:
    below = next((name for limit, name in ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"))
                  if pairs < limit), "1M<n<10M")  # fmt: skip
    return below


def _is_present(where: str, files: Sequence[str]) -> bool:
    folder = where.split("`")[1] if where.startswith("`") else ""
    return not folder.endswith("/") or any(file.startswith(folder) for file in files)


def card_text(about: dict, counts: dict, columns: dict[str, dict], files: Sequence[str]) -> str:
    """Return README.md: the header that Hugging Face's ``datasets`` reads, and a short description.

    ``columns``: {config: columns}; ``files``: all files so far, which determine the splits and folders.
    """
    configs = []
    for config, (folder, _) in CONFIGS.items():
        splits = [
            {"split": name, "path": f"{folder}/{name}-*.parquet"}
            for name in SPLIT_NAMES.values()
            if any(file.startswith(f"{folder}/{name}-") for file in files)
        ]
        configs.append({"config_name": config, "data_files": splits} | ({"default": True} if config == "pairs" else {}))
    head = {
        "pretty_name": about["name"],
        "license": "other",
        "license_name": about["licence"],
        "task_categories": ["image-segmentation", "visual-question-answering"],
        "tags": ["chest x-ray", "radiology", "medical"],
        "language": ["en"],
        "size_categories": [_size_category(sum(counts[split]["pairs"] for split in SPLIT_NAMES))],
        "configs": configs,
        "dataset_info": [
            {"config_name": config, "features": card_features(config_columns)}
            for config, config_columns in columns.items()
        ],
    }
    return f"""---
{yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=120)}---

# {about["name"]} {about["version"]}

Instruction-guided lesion segmentation of chest X-rays: an instruction ("Segment the opacity in the right lung base."),
its answer, and a mask, made from X-rays and their reports by cxr-ils without human labels.

{markdown_table(["split", "pairs", "studies", "subjects", "images", "masks"], count_rows(counts))}

{markdown_table(["what", "where"], [row for row in CONTENTS if _is_present(row[1], files)])}

A mask is a picture of 512 x 512 pixels, the *frame*. `to_original` of its image (six numbers, row by row) maps x, y of
the frame to the image's own pixels, with pixel centres at + 0.5.

Withheld: {"; ".join(WITHHELD[kind] for kind in about["withhold"]) or "nothing"}.
"""


def datasheet_text(about: dict, package_facts: dict) -> str:
    """Return DATASHEET.md. ``package_facts``: the facts from :mod:`cxr.reporting.release.package`."""
    counts, parts = package_facts["counts"], []
    parts.append(f"# Datasheet: {about['name']} {about['version']}\n")
    parts.append(f"Made by {about['creator'] or 'not stated'}, {about['date']}. Licence: {about['licence']}.\n")
    parts.append("## What it holds\n")
    parts.append(
        markdown_table(["split", "pairs", "studies", "subjects", "images", "masks"], count_rows(counts)) + "\n"
    )
    head = ["lesion", *(f"{split} {sign}" for split in SPLIT_NAMES for sign in ("+", "-"))]
    parts.append(markdown_table(head, lesion_rows(counts)) + "\n")
    parts.append(f"Test split: {package_facts['test']}\n")
    if package_facts["dicom"]:
        parts.append("DICOM segmentations (the reasons count images with a mask that have none):\n")
        parts.append(markdown_table(["", "number"], list(package_facts["dicom"].items())) + "\n")
    parts.append("## Withheld\n")
    parts += [f"* {WITHHELD[kind]}" for kind in about["withhold"]] or ["Nothing."]
    parts.append(
        "\nOnly the data named here are left out. The terms of the images and reports, below, decide whether the rest "
        "may be passed on.\n"
    )
    parts.append("## Licences\n")
    parts.append(f"* Images and reports: {package_facts['source']}")
    parts += [
        f"* Weights `{w['name']}` ({w['used_by']}; {w['source']}): {w['licence']}" for w in package_facts["weights"]
    ]
    parts.append("* cxr-ils, the code: MIT\n")
    parts.append("## Limits\n")
    parts += [f"* {limit}" for limit in LIMITS]
    parts.append("\n## Excluded images\n")
    rows = [[row["stage"], row["reason"], row["images"], row["meaning"]] for row in package_facts["excluded"]]
    parts.append(markdown_table(["stage", "reason", "images", "meaning"], rows) + "\n")
    parts.append("Pairs that were not made:\n")
    parts.append(
        markdown_table(["reason", "pairs"], [[row["reason"], row["pairs"]] for row in package_facts["dropped"]]) + "\n"
    )
    parts.append(f"## How it was made\n\nThresholds `{about['thresholds']}`, seed {about['seed']}:\n")
    taus = list(package_facts["taus"]["general"])
    rows = [[part, *(values[tau] for tau in taus)] for part, values in package_facts["taus"].items()]
    parts.append(markdown_table(["lesions", *taus], rows) + "\n")
    parts.append("Engines, and digests of the code that made each stage's files:\n")
    rows = [
        [stage, package_facts["engines"].get(stage, ""), ", ".join(package_facts["digests"].get(stage, []))]
        for stage in sorted({*package_facts["engines"], *package_facts["digests"]})
    ]
    parts.append(markdown_table(["stage", "engine", "code"], rows) + "\n")
    parts.append("Weights:\n")
    parts.append(
        markdown_table(["file", "sha256"], [[w["name"], w["sha256"]] for w in package_facts["weights"]]) + "\n"
    )
    parts.append("Packages of the environments:\n")
    rows = [[name, ", ".join(pins)] for name, pins in package_facts["environments"].items()]
    parts.append(markdown_table(["environment", "packages"], rows) + "\n")
    parts.append("All settings: `ro-crate-metadata.json`. Checksums of all files: `SHA256SUMS`.\n")
    return "\n".join(parts)

"""Compose the texts of a package: the card (README.md) and the datasheet (DATASHEET.md)."""

from collections.abc import Collection, Mapping, Sequence
from string import Template

import yaml

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS
from cxr.radvlm.settings import FORMATS
from cxr.reporting.release.parquet import CONFIGS, SPLIT_NAMES, card_features

RESOURCE_FILES = (
    "release/texts.yaml", "release/card.txt", "release/datasheet.txt", "release/mix_card.txt",
    "release/mix_datasheet.txt",
)  # fmt: skip
TEXTS = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
TERMS: Mapping[str, str] = {name: source.terms for name, source in FORMATS.items()} | TEXTS["terms"]
"""{format of a RadVLM source, or a value of ``cohort.source``: terms of use of its facts, texts and images}."""
NOTHING_WITHHELD = "nothing"
SIZES = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"))


def fill_template(name: str, /, **values: object) -> str:
    """Return the text ``resources/release/{name}.txt`` with ``values`` in place of its ``$names``."""
    return Template((RESOURCES / "release" / f"{name}.txt").read_text(encoding="utf-8")).substitute(values)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table with the headings ``head``."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def markdown_list(items: Sequence[str]) -> str:
    """Return a Markdown list, or "Nothing." without items."""
    return "\n".join(f"* {item}" for item in items) or "Nothing."


def describe_configs(folders: Mapping[str, str], files: Collection[str], default: str) -> list[dict]:
    """Return a card's entry ``configs``: files per table of ``folders``, {table: folder}. ``default``: main table."""
    configs = []
    for config, folder in folders.items():
        splits = [
            {"split": name, "path": f"{folder}/{name}-*.parquet"}
            for name in SPLIT_NAMES.values()
            if any(file.startswith(f"{folder}/{name}-") for file in files)
        ]
        configs.append({"config_name": config, "data_files": splits} | ({"default": True} if config == default else {}))
    return configs


def _count_table(counts: dict) -> str:
    names = ("pairs", "studies", "subjects", "images", "masks")
    rows = [[split, *(counts[split][name] for name in names)] for split in SPLIT_NAMES]
    return markdown_table(["split", *names], rows)


def card_text(about: dict, counts: dict, columns: dict[str, dict], files: Sequence[str]) -> str:
    """Return README.md, which has a header for Hugging Face's ``datasets`` and a short description.

    ``about`` has the settings that describe the package, ``counts`` its numbers per split. ``columns`` is {table:
    {column: type}}. ``files`` are all other files of the package, from which splits and folders are listed.
    """
    num_pairs = sum(counts[split]["pairs"] for split in SPLIT_NAMES)
    head = {
        "pretty_name": about["name"],
        "license": "other",
        "license_name": about["licence"],
        "task_categories": ["image-segmentation", "visual-question-answering"],
        "tags": ["chest x-ray", "radiology", "medical"],
        "language": ["en"],
        "size_categories": [next((name for limit, name in SIZES if num_pairs < limit), "1M<n<10M")],
        "configs": describe_configs({config: folder for config, (folder, _) in CONFIGS.items()}, files, "pairs"),
        "dataset_info": [
            {"config_name": config, "features": card_features(config_columns)}
            for config, config_columns in columns.items()
        ],
    }
    contents = []
    for row in TEXTS["contents"]:
        folder = row[1].split("`")[1] if row[1].startswith("`") else ""
        if not folder.endswith("/") or any(file.startswith(folder) for file in files):
            contents.append(row)
    return fill_template(
        "card",
        head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=120),
        name=about["name"],
        version=about["version"],
        counts=_count_table(counts),
        contents=markdown_table(["what", "where"], contents),
        withheld="; ".join(TEXTS["withheld"][kind] for kind in about["withhold"]) or NOTHING_WITHHELD,
    )


def datasheet_text(about: dict, package_facts: dict) -> str:
    """Return DATASHEET.md. ``package_facts`` are the ones of :func:`cxr.reporting.release.package.run_package`."""
    counts, weights, engines = (package_facts[name] for name in ("counts", "weights", "engines"))
    digests, taus = package_facts["digests"], package_facts["taus"]
    signs = {"+": "positive", "-": "negative"}
    columns = [(split, sign) for split in SPLIT_NAMES for sign in signs]
    lesions = [[name, *(counts[split][signs[sign]].get(name, 0) for split, sign in columns)] for name in LESIONS]
    dicom = ""
    if package_facts["dicom"]:
        dicom = "\nDICOM segmentations (the reasons count images with a mask that have none):\n\n"
        dicom += markdown_table(["", "number"], list(package_facts["dicom"].items())) + "\n"
    weight_terms = [f"Weights `{w['name']}` ({w['used_by']}; {w['source']}): {w['licence']}" for w in weights]
    excluded = [[row[name] for name in ("stage", "reason", "images", "meaning")] for row in package_facts["excluded"]]
    dropped = [[row["reason"], row["pairs"]] for row in package_facts["dropped"]]
    tau_names = list(taus["general"])
    stages = sorted({*engines, *digests})
    return fill_template(
        "datasheet",
        **{name: about[name] for name in ("name", "version", "date", "licence", "thresholds", "seed")},
        creator=about["creator"] or "not stated",
        counts=_count_table(counts),
        lesions=markdown_table(["lesion", *(f"{split} {sign}" for split, sign in columns)], lesions),
        test=package_facts["test"],
        dicom=dicom,
        withheld=markdown_list([TEXTS["withheld"][kind] for kind in about["withhold"]]),
        licences=markdown_list([f"Images and reports: {package_facts['source']}", *weight_terms]),
        limits=markdown_list(TEXTS["limits"]),
        excluded=markdown_table(["stage", "reason", "images", "meaning"], excluded),
        dropped=markdown_table(["reason", "pairs"], dropped),
        taus=markdown_table(
            ["lesions", *tau_names], [[part, *(values[tau] for tau in tau_names)] for part, values in taus.items()]
        ),
        engines=markdown_table(
            ["stage", "engine", "code"],
            [[stage, engines.get(stage, ""), ", ".join(digests.get(stage, []))] for stage in stages],
        ),
        weights=markdown_table(["file", "sha256"], [[w["name"], w["sha256"]] for w in weights]),
        environments=markdown_table(
            ["environment", "packages"],
            [[name, ", ".join(pins)] for name, pins in package_facts["environments"].items()],
        ),
    )

"""Describe the run as an RO-Crate 1.1 (JSON-LD): the package, its workflow and its settings.

It follows the profile Process Run Crate: a CreateAction with the workflow as instrument, the settings and weights as
objects, and the package as result.
"""

import json

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CRATE_NAME = "ro-crate-metadata.json"
FOLDERS = {
    "data/": "pairs, as Parquet", "images/": "geometry of the images, as Parquet", "coco/": "COCO",
    "dicom_seg/": "DICOM segmentations", "authors/": "the layout of the authors' release",
}  # fmt: skip
FILES = {"README.md": "text/markdown", "DATASHEET.md": "text/markdown", "croissant.json": "application/ld+json"}


def build_crate(about: dict, package_facts: dict, description: str, folders: list[str]) -> dict:
    """Return the RO-Crate document. ``folders``: the :data:`FOLDERS` that the package has."""
    settings = [_property_value(name, value) for name, value in sorted(_flatten(package_facts["settings"]).items())]
    engines = [
        {"@id": f"#stage-{stage}", "@type": "SoftwareApplication", "name": f"cxr-ils {stage}",
         "softwareVersion": ", ".join(package_facts["digests"].get(stage, [])) or "not stated",
         "description": f"engine: {package_facts['engines'].get(stage, 'none to choose')}",
         "softwareRequirements": ", ".join(_stage_packages(package_facts, stage)) or "not stated"}
        for stage in sorted({*package_facts["engines"], *package_facts["digests"]})
    ]  # fmt: skip
    weights = [
        {"@id": f"#weights-{w['sha256'][:16]}", "@type": "CreativeWork", "name": w["name"], "license": w["licence"],
         "identifier": f"sha256:{w['sha256']}", "creditText": w["source"]}
        for w in package_facts["weights"]
    ]  # fmt: skip
    parts = [{"@id": folder, "@type": "Dataset", "name": FOLDERS[folder]} for folder in folders]
    parts += [{"@id": name, "@type": "File", "name": name, "encodingFormat": kind} for name, kind in FILES.items()]
    root = {
        "@id": "./", "@type": "Dataset", "name": about["name"], "version": about["version"], "description": description,
        "datePublished": about["date"], "license": {"@id": "#licence"}, "hasPart": _references(parts),
        "mentions": [{"@id": "#run"}], "conformsTo": {"@id": PROFILE}, "author": {"@id": "#maker"},
    }  # fmt: skip
    action = {
        "@id": "#run", "@type": "CreateAction", "name": "The run of cxr-ils that made this package",
        "instrument": {"@id": "#workflow"}, "agent": {"@id": "#maker"}, "endTime": about["date"],
        "object": _references([*settings, *weights]), "result": [{"@id": "./"}],
    }  # fmt: skip
    workflow = {
        "@id": "#workflow", "@type": ["SoftwareSourceCode", "SoftwareApplication"], "name": "cxr-ils",
        "programmingLanguage": "Snakemake", "version": package_facts["code"], "hasPart": _references(engines),
        "license": "https://spdx.org/licenses/MIT", "url": about["url"] or "https://example.org/",
    }  # fmt: skip
    descriptor = {
        "@id": CRATE_NAME, "@type": "CreativeWork", "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }  # fmt: skip
    context_entities = [
        {"@id": "#licence", "@type": "CreativeWork", "name": about["licence"]},
        {"@id": "#maker", "@type": "Organization", "name": about["creator"] or "not stated"},
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
    ]
    graph = [descriptor, root, action, workflow, *context_entities, *engines, *weights, *parts, *settings]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _stage_packages(package_facts: dict, stage: str) -> list[str]:
    """Return the packages of a stage's environment, which is named after the stage, with or without its engine."""
    names = (f"{stage}-{package_facts['engines'].get(stage)}", stage)
    return next((package_facts["environments"][name] for name in names if name in package_facts["environments"]), [])


def _references(entities: list[dict]) -> list[dict]:
    return [{"@id": entity["@id"]} for entity in entities]


def _flatten(value: dict, before: str = "") -> dict[str, object]:
    value_by_key: dict[str, object] = {}
    for name, inner in value.items():
        value_by_key |= (
            _flatten(inner, f"{before}{name}.") if isinstance(inner, dict) and inner else {f"{before}{name}": inner}
        )
    return value_by_key


def _property_value(name: str, value: object) -> dict:
    return {"@id": f"#setting-{name}", "@type": "PropertyValue", "name": name, "value": json.dumps(value)}

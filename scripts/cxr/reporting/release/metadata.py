"""Describe a package for machines, as Croissant 1.0 (MLCommons' vocabulary for datasets) and as an RO-Crate 1.1.

Both are JSON-LD. The RO-Crate follows the profile Process Run Crate. Its CreateAction has the workflow as instrument,
the settings and weights as objects, and the package as result.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.base.paths import RESOURCES
from cxr.reporting.release.parquet import CONFIGS, IMAGE_TYPE

RESOURCE_FILES = ("release/croissant_context.json",)
TYPES = {pl.String: "sc:Text", pl.Int64: "sc:Integer", pl.Float64: "sc:Float", pl.Boolean: "sc:Boolean"}
FORMATS = {".parquet": "application/x-parquet", ".json": "application/json"}


def build_croissant(about: dict, columns: dict[str, dict], files: dict[str, str], description: str) -> dict:
    """Return the Croissant document. ``columns`` is {table: {column: type}}, ``files`` is {path: SHA-256}."""
    return {
        "@context": json.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "name": about["name"],
        "description": description,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "citeAs": about["cite"] or f"{about['name']} {about['version']}",
        "license": about["licence"],
        "url": about["url"] or "https://example.org/",
        "version": about["version"],
        "datePublished": about["date"],
        "creator": {"@type": "sc:Organization", "name": about["creator"] or "not stated"},
        "distribution": [
            {"@type": "cr:FileObject", "@id": path, "name": path, "contentUrl": path,
             "encodingFormat": FORMATS[Path(path).suffix], "sha256": digest}
            for path, digest in files.items()
        ] + [
            {"@type": "cr:FileSet", "@id": f"{config}-files", "name": f"{config}-files",
             "encodingFormat": FORMATS[".parquet"], "includes": f"{CONFIGS[config][0]}/*.parquet"}
            for config in columns
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": config, "name": config,
             "field": [_field(config, *column) for column in config_columns.items()]}
            for config, config_columns in columns.items()
        ],
    }  # fmt: skip


def _field(config: str, name: str, kind: object) -> dict:
    source: dict = {"fileSet": {"@id": f"{config}-files"}, "extract": {"column": name}}
    if kind == IMAGE_TYPE:
        # the PNG of the image is in the field ``bytes`` of the struct
        data_type, source["transform"] = "sc:ImageObject", {"jsonPath": "bytes"}
    else:
        data_type = TYPES[kind.inner if isinstance(kind, pl.List) else kind]
    field = {"@type": "cr:Field", "@id": f"{config}/{name}", "name": name, "dataType": data_type, "source": source}
    return field | ({"repeated": True} if isinstance(kind, pl.List) else {})


def described_files(files: Sequence[str]) -> list[str]:
    """Return those of ``files`` that the Croissant document describes, sorted."""
    return sorted(file for file in files if file.startswith(("data/", "images/", "coco/")))


PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
CRATE_NAME = "ro-crate-metadata.json"
FOLDERS = {
    "data/": "pairs, as Parquet", "images/": "geometry of the images, as Parquet", "coco/": "COCO",
    "dicom_seg/": "DICOM segmentations", "authors/": "the layout of the authors' release",
}  # fmt: skip
FILES = {"README.md": "text/markdown", "DATASHEET.md": "text/markdown", "croissant.json": "application/ld+json"}


def build_crate(about: dict, package_facts: dict, description: str, folders: list[str]) -> dict:
    """Return the RO-Crate document. ``package_facts`` are those of :func:`cxr.reporting.release.package.run_package`,
    and ``folders`` the keys of :data:`FOLDERS` that the package has."""
    settings = [
        {"@id": f"#setting-{name}", "@type": "PropertyValue", "name": name, "value": json.dumps(value)}
        for name, value in sorted(_flatten(package_facts["settings"]).items())
    ]
    pins, chosen_engines = package_facts["environments"], package_facts["engines"]
    engines = [
        {"@id": f"#stage-{stage}", "@type": "SoftwareApplication", "name": f"cxr-ils {stage}",
         "softwareVersion": ", ".join(package_facts["digests"].get(stage, [])) or "not stated",
         "description": f"engine: {chosen_engines.get(stage, 'none to choose')}",
         # the name of an environment is {stage}-{engine} or {stage}
         "softwareRequirements": ", ".join(pins.get(f"{stage}-{chosen_engines.get(stage)}", pins.get(stage, [])))
         or "not stated"}
        for stage in sorted({*chosen_engines, *package_facts["digests"]})
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


def _references(entities: list[dict]) -> list[dict]:
    return [{"@id": entity["@id"]} for entity in entities]


def _flatten(value: dict, before: str = "") -> dict[str, object]:
    value_by_key: dict[str, object] = {}
    for name, inner in value.items():
        is_group = isinstance(inner, dict) and inner
        value_by_key |= _flatten(inner, f"{before}{name}.") if is_group else {f"{before}{name}": inner}
    return value_by_key

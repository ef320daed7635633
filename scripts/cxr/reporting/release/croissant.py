"""Describe the package in Croissant, MLCommons' vocabulary for datasets (JSON-LD, format version 1.0)."""

from collections.abc import Sequence

import polars as pl

from cxr.reporting.release.parquet import CONFIGS, IMAGE_TYPE

CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
TYPES = {pl.String: "sc:Text", pl.Int64: "sc:Integer", pl.Float64: "sc:Float", pl.Boolean: "sc:Boolean"}
FORMATS = {".parquet": "application/x-parquet", ".json": "application/json"}


def build_croissant(about: dict, columns: dict[str, dict], files: dict[str, str], description: str) -> dict:
    """Return the Croissant document. ``columns``: {config: columns}; ``files``: {path: sha256} of Parquet and COCO."""
    return {
        "@context": CONTEXT,
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
        "distribution": [_file_object(path, digest) for path, digest in files.items()]
        + [_file_set(name) for name in columns],
        "recordSet": [_record_set(name, config_columns) for name, config_columns in columns.items()],
    }


def _file_object(path: str, digest: str) -> dict:
    kind = next(kind for ending, kind in FORMATS.items() if path.endswith(ending))
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path,
        "contentUrl": path,
        "encodingFormat": kind,
        "sha256": digest,
    }


def _file_set(config: str) -> dict:
    folder, _ = CONFIGS[config]
    return {
        "@type": "cr:FileSet", "@id": f"{config}-files", "name": f"{config}-files",
        "encodingFormat": FORMATS[".parquet"], "includes": f"{folder}/*.parquet",
    }  # fmt: skip


def _record_set(config: str, columns: dict) -> dict:
    return {
        "@type": "cr:RecordSet",
        "@id": config,
        "name": config,
        "field": [_field(config, *column) for column in columns.items()],
    }


def _field(config: str, name: str, kind: object) -> dict:
    column, extract, more = name, {"column": name}, {}
    if kind == IMAGE_TYPE:
        # the bytes of a PNG within the column's struct
        data_type, more = "sc:ImageObject", {"transform": {"jsonPath": "bytes"}}
    elif isinstance(kind, pl.List):
        data_type = TYPES[kind.inner]
    else:
        data_type = TYPES[kind]
    field = {
        "@type": "cr:Field", "@id": f"{config}/{column}", "name": column, "dataType": data_type,
        "source": {"fileSet": {"@id": f"{config}-files"}, "extract": extract} | more,
    }  # fmt: skip
    return field | ({"repeated": True} if isinstance(kind, pl.List) else {})


def described_files(files: Sequence[str]) -> list[str]:
    """Return the sorted files that the document describes."""
    return sorted(file for file in files if file.startswith(("data/", "images/", "coco/")))

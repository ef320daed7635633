"""Settings of the stage medground_sources."""

import re
from typing import Literal

from cxr.base.settings import PAPER, Section, Share, constraint, key, refuse_equal_names

Domain = Literal["bacteria", "nuclei", "ultrasound", "dermoscopy", "ct", "cxr", "other"]
EMBEDDED = ("ils", "cells")  # kinds that need no file from the user


class ClassSettings(Section):
    """Nouns of a class of regions, and limits on what queries may say about it."""

    one: str = key("", "Singular noun of the class; empty: its name.")
    many: str = key("", "Plural noun of the class; empty: the singular with an s.")
    parents: dict[str, str] = key(dict, "Broader terms that queries may use: {singular: plural}.")
    ask: bool = key(True, "Whether a query may ask for the class.")
    opaque: bool = key(True, "Whether the class is brighter than healthy lung, so that the anomaly map can show it.")
    inside: bool = key(
        True, "Whether queries may say that a region of the class lies in another region. Set false for organs."
    )


class SourceSet(Section):
    """One source of images and masks."""

    kind: Literal["ils", "cells", "folder", "boxes", "medsegbench", "lvit"] = key(
        "folder",
        "ils: lesion masks of ILS; cells: synthetic microscopy; folder: a CSV manifest (image_path, mask_path, "
        "split; optional image_id, subject_id, class, domain, description, licence); boxes: as folder, with x, y, "
        "w, h, class in place of mask_path; medsegbench: a published npz file; lvit: a folder in LViT's layout.",
    )
    manifest: str = key("", "Path of the CSV manifest (only for the kinds `folder` and `boxes`).")
    npz: str = key("", "MedSegBench file with its published name, such as fhpsaop_256.npz (kind `medsegbench`).")
    folder: str = key("", "Folder that contains Train_Folder, Val_Folder or Test_Folder (kind `lvit`).")
    use: Literal["dataset", "zero_shot"] = key(
        "dataset", "dataset: queries go to their split's file; zero_shot: all go to zero_shot.jsonl, only for tests."
    )
    queries: Literal["engine", "statements"] = key(
        "engine",
        "engine: queries are generated; statements: images' descriptions are the queries (only if `use` is zero_shot).",
        source=PAPER,
    )
    anatomy: str = key("", "Folder of ILS results for the same radiographs (domain cxr); empty: no lung zones.")
    anomaly: Literal["none", "results"] = key(
        "none", "results: the judge `rules` also uses the anomaly maps in `anatomy`; none: it uses no anomaly maps."
    )
    thresholds: str = key("default", "Name of the threshold set whose lesion masks are used (kind `ils`).")
    domain: Domain = key("other", "Image domain, if the manifest has no column domain.", source=PAPER)
    modality: str = key("", 'Imaging modality in words, such as "abdominal CT", for prompts and datasets.')
    licence: str = key("", "Licence of images and masks, if the manifest has no column licence.")
    orientation: Literal["radiological", "unknown"] = key(
        "radiological", "radiological: image left is patient right (cxr, ct); unknown: queries name no patient's side."
    )
    mask_kind: Literal["semantic", "instances"] = key(
        "semantic", "semantic: connected components are regions; instances: each mask value is one region."
    )
    mask_values: dict[str, str] = key(dict, "{mask value: class}; empty: foreground has the class in the manifest.")
    classes: dict[str, ClassSettings] = key(dict, "{class: its nouns}; empty: all regions have the class `region`.")
    tile: int | None = key(None, "Side of tiles into which images are cut; null: no tiles.", unit="px", ge=32, le=4096)
    allow: list[str] = key(list, "Words that queries may use although they belong to another image domain.")

    @constraint
    def _values_have_classes(self) -> None:
        for value, name in self.mask_values.items():
            if not re.fullmatch(r"\d+", value):
                raise ValueError(f"mask_values has the key {value!r}, which is not a whole number: give a mask's value")
            if name not in (self.classes or {"region": None}):
                raise ValueError(f"mask_values names the class {name!r}, which is not in classes: add it there")

    @constraint
    def _anatomy_and_statements_have_sides(self) -> None:
        if self.anomaly == "results" and not self.anatomy:
            raise ValueError("anomaly is results, but anatomy is empty: name the folder of ILS results there")
        sided = {"orientation": ("radiological",), "tile": (None,)}
        if self.anatomy:
            self._require(f"anatomy is {self.anatomy!r}", kind=("folder", "boxes", "lvit"), domain=("cxr",), **sided)
        if self.queries == "statements":
            needs = {"use": ("zero_shot",), "kind": ("lvit", "folder"), "domain": ("cxr", "ct")}
            self._require("queries is statements", **needs, **sided)

    def _require(self, reason: str, **needs: tuple) -> None:
        for name, allowed in needs.items():
            if getattr(self, name) not in allowed:
                choices = " or ".join("null" if value is None else value for value in allowed)
                raise ValueError(f"{reason}, but {name} is {getattr(self, name)!r}: set {name} to {choices}")


class SourcesSettings(Section):
    """Sources of images and masks."""

    sets: dict[str, SourceSet] = key(dict, "{name: source}; empty: `ils`, and if cohort.source is embedded, `cells`.")
    size: int = key(512, "Side of square frames, a multiple of 8; not of `cells` or tiles.", unit="px", ge=64, le=2048)
    shards: int | None = key(
        None,
        "Shards per source. null: the cohort's number if a source is of kind `ils`, 1 if all are `cells`, otherwise 8.",
        ge=1,
        le=1024,
    )
    mask_threshold: float = key(0, "Value above which a mask pixel is foreground; 0: masks must be binary.", ge=0)
    most_foreground: Share = key(0.8, "Maximum fraction of an image that a binary mask may cover; 1: no limit.")
    resize_masks: Literal["none", "nearest"] = key(
        "none", "Masks of another size than their image. nearest: they are resized; none: the image is excluded."
    )
    cells: int = key(48, "Number of synthetic microscopy images (kind `cells`).", ge=1, le=100_000)

    def in_use(self, cohort_source: str) -> dict[str, SourceSet]:
        """Return {name: source}: ``sets`` or, if it is empty, the default sources for this ``cohort.source``."""
        cell_sources = {"cells": SourceSet(kind="cells", domain="nuclei")} if cohort_source == "embedded" else {}
        return self.sets or {"ils": SourceSet(kind="ils")} | cell_sources

    @constraint
    def _names_are_plain(self) -> None:
        for name, source in self.sets.items():
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
                raise ValueError(f"sets has the name {name!r}: use a letter, then letters, digits and _")
            if source.kind in EMBEDDED and source.manifest:
                raise ValueError(f"sets.{name}.manifest is {source.manifest!r}, but {source.kind} uses none: remove it")
        refuse_equal_names("medground.sources.sets", self.sets)
        if self.size % 8:
            raise ValueError(f"size is {self.size}, which is not a multiple of 8: give one, such as 512")

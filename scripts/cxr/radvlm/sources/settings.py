"""Settings of RadVLM's sources."""

import re
from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, Share, constraint, key, refuse_equal_names

OWN = "own"
"""The source that is read from the cohort."""
ON_MIMIC = ("ms_cxr", "imagenome")
"""Formats whose pictures are those of a source of format mimic."""
FILES = ("nih", "rsna", "coco")
"""Formats whose path is a file."""
Split = Literal["train", "validate", "test"]


class FactSource(Section):
    """One external source."""

    format: Literal[
        "mimic", "chexpert", "chexpert_plus", "vindr", "ms_cxr", "padchest_gr", "imagenome", "nih", "rsna", "coco"
    ] = key("mimic", "Format of its files.")
    path: str = key("", "Its folder, as published; of nih, rsna and coco the file of boxes.")
    pictures: str = key(
        "",
        "Folder of its pictures, of mimic that of `files/` with the reports; empty: `path`. Of ms_cxr and imagenome: "
        "the name of a source of format mimic.",
    )
    subject: str = key(
        "",
        "Regular expression whose first group is the subject in an image's name; empty: the image itself.",
    )


class Fusion(Section):
    """Boxes of several readers become one."""

    iou: Share = key(0.1, "Overlap above which boxes of a class are fused.", source=AUTHORS)
    decimals: int = key(3, "Decimals that fused boxes are rounded to, of the unit square.", source=AUTHORS, ge=2, le=8)
    splits: list[Split] = key(
        lambda: ["train", "validate"], "Splits whose boxes are fused. Test boxes of VinDr-CXR are a consensus."
    )


class FactSources(Section):
    """Facts and pictures of each source."""

    use: list[str] = key(lambda: [OWN], "Sources whose facts go into the mix.", min_length=1)
    list: dict[str, FactSource] = key(dict, "External sources, by name.")
    uncertain: Literal["absent", "present", "left_out"] = key(
        "absent", "What an uncertain label counts as; left_out: neither.", source=PAPER
    )
    labels: Literal["rules", "table", "chexbert"] = key(
        "rules",
        "Where the 14 labels of own come from. rules: its reports' findings; table: columns of the manifest that are "
        "named like the labels; chexbert: the model of that name, of the section that was used.",
    )
    weak_hedges: Literal["absent", "present"] = key("absent", "What weakly hedged findings are in labels of own.")
    regions: Literal["zones", "table"] = key(
        "zones", "Where the regions of own come from. zones: masks and geometry; table: none, unless a source has them."
    )
    fusion: Fusion = key(Fusion, "Fusion of readers' boxes.")
    split: Literal["mimic", "published"] = key(
        "mimic", "Whose split decides for Chest ImaGenome. published: its own, whose test pictures MIMIC trains on."
    )
    min_box: Share = key(0.0, "Boxes with a side up to this fraction of the picture's are left out.")

    @constraint
    def _sources_are_known(self) -> None:
        for name in self.list:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == OWN:
                raise ValueError(f"list has the name {name!r}: use lower-case letters, digits and _, but not {OWN!r}")
        refuse_equal_names("list", self.list)
        for name in self.use:
            if name != OWN and name not in self.list:
                source_names = ", ".join([OWN, *self.list])
                raise ValueError(f"use names {name!r}, but the sources are {source_names}: declare it in list")
        if len(set(self.use)) < len(self.use):
            raise ValueError(f"use names {max(self.use, key=self.use.count)!r} twice: name it once")
        for name, source in self.list.items():
            if not source.path:
                raise ValueError(f"list.{name}.path is empty: give the folder or file of the source")
            mimic = [mimic_name for mimic_name, candidate in self.list.items() if candidate.format == "mimic"]
            if source.format in ON_MIMIC and source.pictures not in mimic:
                raise ValueError(
                    f"list.{name}.pictures is {source.pictures!r}, but a source of format {source.format} needs the "
                    f"name of one of format mimic: {f'give {mimic[0]}' if mimic else 'declare one in list'}"
                )

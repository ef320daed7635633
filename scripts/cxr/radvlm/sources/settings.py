"""Settings of RadVLM's sources."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from cxr.base.resources import load_resource
from cxr.base.settings import PAPER, Section, constraint, key, refuse_equal_names

OWN = "own"  # the source that is read from the cohort
RESOURCE_FILES = ("radvlm/formats.yaml",)


class SourceFormat(NamedTuple):
    """A format of sources. reader: ``<module of cxr.radvlm.sources>.<function>``; terms: of its facts, texts and
    images; family: sources of one family share subjects, so no subject is in two of its splits, "": none are shared;
    conversations: kinds of conversations about it; is_file: its path is a file; on_mimic: it uses the images of a
    source of format mimic.
    """

    reader: str
    terms: str
    family: str = ""
    conversations: Sequence[str] = ()
    is_file: bool = False
    on_mimic: bool = False


FORMATS = {name: SourceFormat(**entry) for name, entry in load_resource(RESOURCE_FILES[0]).items()}
"""{format of external sources: how they are read}."""
Format = Literal[tuple(FORMATS)]  # type: ignore[valid-type]


class FactSource(Section):
    """One external source."""

    format: Format = key("mimic", "Format of its files.")
    path: str = key("", "Folder of the source as published; for nih, rsna and coco the file of boxes.")
    pictures: str = key(
        "",
        "Folder of its images (mimic: of `files/` with the reports); empty: `path`. For ms_cxr and imagenome: "
        "name of a source of format mimic.",
    )
    subject: str = key(
        "", "Regular expression whose first group is the subject in an image's name; empty: each image is a subject."
    )


class FactSources(Section):
    """Facts and images of each source."""

    use: list[str] = key(lambda: [OWN], "Sources of the mix.", min_length=1)
    list: dict[str, FactSource] = key(dict, "External sources, by name.")
    uncertain: Literal["absent", "present", "left_out"] = key(
        "absent", "Value of uncertain labels; left_out: they stay uncertain and are not used.", source=PAPER
    )
    labels: Literal["rules", "table", "chexbert"] = key(
        "rules",
        "Origin of the 14 labels of own. rules: the findings of its reports; table: columns of the manifest with "
        "the labels' names; chexbert: the model CheXbert, from the report section in use.",
    )
    weak_hedges: Literal["absent", "present"] = key("absent", "Value of weakly hedged findings in the labels of own.")
    split: Literal["mimic", "published"] = key(
        "mimic",
        "Split of Chest ImaGenome. mimic: that of MIMIC-CXR; published: its own, whose test images MIMIC-CXR has "
        "in train.",
    )

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
            if FORMATS[source.format].on_mimic and source.pictures not in mimic:
                raise ValueError(
                    f"list.{name}.pictures is {source.pictures!r}, but a source of format {source.format} needs the "
                    f"name of one of format mimic: {f'give {mimic[0]}' if mimic else 'declare one in list'}"
                )

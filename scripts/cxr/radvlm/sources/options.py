"""What every reader of an external source is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReadOptions:
    """name, source: of the source, its name and its keys (format, path, pictures, subject); uncertain, split, min_box,
    fusion: settings of radvlm.sources; max_characters: of a report; seed, shares: for sources without a split.
    """

    name: str
    source: Mapping[str, str]
    uncertain: str
    split: str
    min_box: float
    fusion: Mapping
    max_characters: int
    section_overrides: bool
    seed: int
    shares: Sequence[float]

    @property
    def key(self) -> str:
        """The setting that names its files."""
        return f"radvlm.sources.list.{self.name}.path"

    @property
    def folder(self) -> Path:
        return Path(self.source["path"])

    @property
    def pictures(self) -> Path:
        """The folder of its pictures."""
        return Path(self.source["pictures"] or self.source["path"])

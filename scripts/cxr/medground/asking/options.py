"""Options of MedGround's language models, which see images."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self

from cxr.base.seeds import stable_hash
from cxr.llm.answer_cache import answer_digest, cache_replies
from cxr.llm.asking import Generate
from cxr.llm.client import connect_lazily
from cxr.llm.options import Execution, ModelOptions

IMAGES_PER_BATCH = 64
"""Images asked about at a time, all of them in memory."""
ANSWERS_FOLDER, ALL = "answers", "all"
"""Folder of the answer cache, and its subfolder for a job of several shards."""


@dataclass(frozen=True, kw_only=True)
class AskingOptions(ModelOptions):
    """source: whose images are asked about; of: the sources of a job's shards, one each; the rest: options of the
    model. Draws depend on the seed, the source and the image.
    """

    source: str = ""
    of: Sequence[str] = ()

    @property
    def each(self) -> list[Self]:
        """Return the options for each shard of the job."""
        return [replace(self, source=name) for name in self.of]

    def seed_of(self, *parts: object) -> int:
        """Return the seed of a question from its subject, so that it does not depend on other images."""
        return stable_hash(self.seed, self.source, *parts) % 2**31


def build_generate(options: AskingOptions, execution: Execution, outputs: Sequence[str], code: str) -> Generate:
    """Return the function that asks the model, which is loaded at the first question that is not in the cache.

    The cache is a folder ``answers``: beside the output of a single shard, or above the folders of several shards.
    ``code``: digest of the code.
    """
    first = Path(outputs[0])
    folder = (
        first.parents[1] / ANSWERS_FOLDER / ALL if len(options.of) > 1 else first.parent / ANSWERS_FOLDER / first.stem
    )
    model = ModelOptions(**{field.name: getattr(options, field.name) for field in fields(ModelOptions)})
    return cache_replies(connect_lazily(options, execution), folder=folder, digest=answer_digest(model, code))

"""Options of MedGround's language models, which look at pictures."""

from dataclasses import dataclass

from cxr.base.seeds import stable_hash
from cxr.llm.options import ModelOptions

PART = 64
"""Images asked about at a time: their pictures are held in memory."""


@dataclass(frozen=True, kw_only=True)
class AskingOptions(ModelOptions):
    """source: whose images are asked about; the rest: options of the model. Draws depend on the seed and the image."""

    source: str

    def seed_of(self, *parts: object) -> int:
        """Return the seed of a question, by what it is about: another image changes no answer."""
        return stable_hash(self.seed, self.source, *parts) % 2**31

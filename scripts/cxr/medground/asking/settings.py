"""Settings of MedGround's language models, which see images."""

from pathlib import Path
from typing import Literal

from cxr.base.settings import Section, key, redefine
from cxr.llm.settings import LanguageModel


class ModelsSettings(Section):
    """How the model that words queries and the judge are asked."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048)
    picture_tokens: int = key(
        1600, "Maximum number of tokens of one image; with more, a question is not asked.", unit="tokens", ge=1
    )
    prompts: str = key("", "A YAML file with other wordings, of the keys of resources/medground/prompts.yaml.")


class ImageModelSettings(Section):
    """A language model that takes images. None is chosen: the paper names no generator, and its judge is closed."""

    model: str = key("", "Hugging Face id or folder of a model that takes images; without one the engine stops.")
    revision: str = redefine(LanguageModel, "revision", "")

    @property
    def model_revision(self) -> tuple[str, str]:
        """The model and, unless it is a folder, its revision."""
        return self.model, "" if Path(self.model).is_dir() else self.revision


class GeneratorSettings(ImageModelSettings):
    """The model that words queries."""

    temperature: float = redefine(LanguageModel, "temperature", 0.7)
    form: Literal["json", "question_answer"] = key(
        "json",
        "json: answers under a schema; question_answer: the paper's `Question:` and `Answer:` lines, "
        "unconstrained; their boxes must be exact copies.",
    )

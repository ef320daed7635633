"""Settings of the small stages (regions, queries, verification, scoring) and of MedGround's language models."""

from pathlib import Path
from typing import Literal, get_args

from cxr.base.settings import PAPER, Section, Share, key, redefine
from cxr.llm.settings import LanguageModel


class RegionsSettings(Section):
    """Components, their boxes and attributes."""

    min_px: int = key(20, "Components of fewer pixels are dropped; of the kind ils, those under 64.", unit="px", ge=1)
    outline_px: int = key(1, "Shift of outlines, out and in, that answers should survive.", unit="px", ge=0, le=10)


class ModelsSettings(Section):
    """How the model that words queries and the judge are asked."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048)
    picture_tokens: int = key(1600, "Most tokens that the model makes of one image.", unit="tokens", ge=1)
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
        "json", "json: answers under a schema; question_answer: the paper's `Question:` and `Answer:` lines."
    )


Family = Literal["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"]


class QueriesSettings(Section):
    """Referring queries."""

    engine: Literal["rules", "vllm", "table"] = key(
        "rules", "rules: a grammar of decidable queries; vllm: a language model that sees the image; table: your texts."
    )
    selection: Literal["ours", "model"] = key(
        "ours", "ours: the engine vllm words sampled decidable targets; model: it chooses the targets, as in the paper."
    )
    llm: GeneratorSettings = key(GeneratorSettings, "The language model of the engine vllm.")
    table: str = key(
        "", "Texts of the engine table: JSON Lines (image_id, query, regions or boxes), or a folder of {image_id}.txt."
    )
    per_image: int = key(3, "Queries per image, twice as many with more than five candidates.", ge=1, le=100)
    fragile: Share = key(0.25, "Largest fraction of an image's queries that shifted outlines may make undecidable.")
    families: list[Family] = key(
        lambda: list(get_args(Family)), "Families of attributes that queries use.", min_length=1
    )


class VerificationSettings(Section):
    """Form, rules that read the text, and a judge."""

    judge: Literal["rules", "vllm", "none"] = key(
        "rules", "rules: measures pixels; vllm: a language model sees the image; none: no third stage.", source=PAPER
    )
    mode: Literal["confirm", "select", "both"] = key(
        "both", "confirm: the judge vllm sees the answer and decides, as in the paper; select: it selects the answer."
    )
    same_model: bool = key(False, "Whether the judge may be the model that wrote the queries.")
    llm: ImageModelSettings = key(ImageModelSettings, "The language model of the judge vllm.")
    unjudged: Literal["keep", "drop"] = key("keep", "Whether queries on which the judge abstains are kept.")


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper does not state its value.")


class ScoringOptions(ScoringSettings):
    """What the scores depend on."""

    replicates: int = 1000

"""Settings of every stage but the sources, and of MedGround's language models."""

from pathlib import Path
from typing import Literal, get_args

from cxr.base.settings import PAPER, Section, Share, constraint, key, redefine
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


class ProcessorSettings(Section):
    """The image processor of a model of the Qwen family, for coordinates in its pixels."""

    patch: int = key(14, "Side of a patch; 14 is Qwen2.5-VL's.", unit="px", ge=1)
    max_pixels: int = key(12_845_056, "Greatest area.", unit="px", ge=1)


class ScispacySettings(Section):
    """Folders of the engine scispacy. Nothing is downloaded."""

    pipeline: str = key("", "Folder of a saved spaCy pipeline that finds entities: `config.cfg` and weights.")
    linker: str = key(
        "", "Folder of a scispaCy linker's files and knowledge base, with a pickle that may run any code; empty: none."
    )


class DatasetSettings(Section):
    """The dataset of all sources."""

    entities: Literal["lexicon", "scispacy"] = key(
        "lexicon", "Engine that counts the clinical concepts of `language.tsv`: the lexicon or a spaCy pipeline."
    )
    scispacy: ScispacySettings = key(ScispacySettings, "The pipeline of the engine scispacy.")
    tokenizer: str = key("", "Folder of a model whose tokenizer counts tokens (tokens.tsv); empty: no token counts.")
    export: list[Literal["messages", "sharegpt", "swift", "coco", "refcoco", "hf"]] = key(
        lambda: ["messages"], "Formats of the exports: OpenAI's, LLaVA's, ms-swift's, COCO's, RefCOCO's, Parquet."
    )
    coordinates: Literal["grid1000", "pixels_original", "pixels_resized"] = key(
        "grid1000", "Coordinates in texts: 0 to 1000, pixels of the source's image, or pixels after a Qwen processor."
    )
    resized: ProcessorSettings = key(ProcessorSettings, "The processor of pixels_resized.")
    withhold: list[Literal["pixels"]] = key(list, "What the exports exclude: pixels.")
    allow_nd: bool = key(False, "Whether exports with pixels include sources whose licence forbids derivatives (ND).")
    audited: bool = key(False, "Whether the exported test split has only audited queries (medground.audit).")

    @constraint
    def _a_pipeline_is_given(self) -> None:
        if self.entities == "scispacy" and not self.scispacy.pipeline:
            problem = "scispacy.pipeline is empty, but entities is scispacy"
            raise ValueError(f"{problem}: give the folder of a spaCy pipeline")


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper does not state its value.")


class ScoringOptions(ScoringSettings):
    """What the scores depend on."""

    replicates: int = 1000

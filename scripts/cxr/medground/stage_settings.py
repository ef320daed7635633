"""Settings of all stages except the sources, and of MedGround's language models."""

from pathlib import Path
from typing import Literal, get_args

from cxr.base.settings import PAPER, Section, Share, constraint, key, redefine
from cxr.llm.settings import LanguageModel


class RegionsSettings(Section):
    """Regions, which are the connected components of masks, with their boxes and attributes."""

    min_px: int = key(20, "Area below which a component is dropped; always 64 for the kind `ils`.", unit="px", ge=1)
    outline_px: int = key(
        1,
        "Distance by which outlines are shifted, out and in, to find queries whose answer changes; 0: no test.",
        unit="px",
        ge=0,
        le=10,
    )


class ModelsSettings(Section):
    """Requests to the language models that write queries and judge them."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048)
    picture_tokens: int = key(1600, "Maximum tokens per image in the model's input.", unit="tokens", ge=1)
    prompts: str = key("", "YAML file of prompts that replace those of resources/medground/prompts.yaml; empty: none.")


class ImageModelSettings(Section):
    """A language model that takes images. There is no default, because the paper names no model that is available."""

    model: str = key("", "Hugging Face id or folder of a model that takes images; required.")
    revision: str = redefine(LanguageModel, "revision", "")

    @property
    def model_revision(self) -> tuple[str, str]:
        """(model, revision). The revision is "" if the model is a folder."""
        return self.model, "" if Path(self.model).is_dir() else self.revision


class GeneratorSettings(ImageModelSettings):
    """The language model that writes queries."""

    temperature: float = redefine(LanguageModel, "temperature", 0.7)
    form: Literal["json", "question_answer"] = key(
        "json", "Format of the answers. json: JSON; question_answer: the paper's `Question:` and `Answer:` lines."
    )


Family = Literal["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"]


class QueriesSettings(Section):
    """Generation of referring queries, which are sentences that select regions of an image."""

    engine: Literal["rules", "vllm", "table"] = key(
        "rules", "Writer of the queries. rules: a grammar; vllm: a model that sees the image; table: the file `table`."
    )
    selection: Literal["ours", "model"] = key(
        "ours", "Choice of the regions to ask for (engine `vllm`). ours: at random; model: by the model (paper)."
    )
    llm: GeneratorSettings = key(GeneratorSettings, "The language model of the engine `vllm`.")
    table: str = key(
        "", "Your queries (engine `table`): JSON Lines (image_id, query, regions or boxes) or folder of {image_id}.txt."
    )
    per_image: int = key(3, "Queries per image; twice as many if more than five regions may be answers.", ge=1, le=100)
    fragile: Share = key(0.25, "Maximum fraction of an image's queries that a shift by `outline_px` makes ambiguous.")
    families: list[Family] = key(
        lambda: list(get_args(Family)), "Kinds of attributes that queries may use.", min_length=1
    )


class VerificationSettings(Section):
    """Verification of queries in three stages: their form, rules that read the text, and a judge."""

    judge: Literal["rules", "vllm", "none"] = key(
        "rules",
        "Judge of the last stage. rules: pixel measurements; vllm: a language model; none: no judge.",
        source=PAPER,
    )
    mode: Literal["confirm", "select", "both"] = key(
        "both", "Task of the judge `vllm`. confirm: verify the given answer (paper); select: find the answer."
    )
    same_model: bool = key(False, "Whether the judge may be the model that wrote the queries.")
    llm: ImageModelSettings = key(ImageModelSettings, "The language model of the judge `vllm`.")
    unjudged: Literal["keep", "drop"] = key("keep", "What happens to queries on which the judge abstains.")


class ProcessorSettings(Section):
    """Image processor of a Qwen model. The coordinates ``pixels_resized`` refer to the images that it has resized."""

    patch: int = key(14, "Side of the model's patches; 14 for Qwen2.5-VL.", unit="px", ge=1)
    max_pixels: int = key(12_845_056, "Maximum area of the resized image.", unit="px", ge=1)


class ScispacySettings(Section):
    """Folders that are needed if ``entities`` is ``scispacy``. Nothing is downloaded."""

    pipeline: str = key("", "Folder of a saved spaCy pipeline that finds entities (`config.cfg` and weights).")
    linker: str = key(
        "", "Folder of a scispaCy linker and its knowledge base; empty: no linker. Its pickle file can run any code."
    )


class DatasetSettings(Section):
    """The dataset, which has the queries of all sources, and its exports."""

    entities: Literal["lexicon", "scispacy"] = key(
        "lexicon", "Finder of clinical concepts for `language.tsv`. lexicon: our word list; scispacy: a spaCy pipeline."
    )
    scispacy: ScispacySettings = key(ScispacySettings, "spaCy pipeline and scispaCy linker, if `entities` is scispacy.")
    tokenizer: str = key("", "Folder of a model whose tokenizer counts tokens (tokens.tsv); empty: no token counts.")
    export: list[Literal["messages", "sharegpt", "swift", "coco", "refcoco", "hf"]] = key(
        lambda: ["messages"], "Export formats: OpenAI (messages), LLaVA (sharegpt), swift, coco, refcoco, Parquet (hf)."
    )
    coordinates: Literal["grid1000", "pixels_original", "pixels_resized"] = key(
        "grid1000",
        "Unit of boxes in texts: 1/1000 of a side, original pixels, or pixels of the resized image (`resized`).",
    )
    resized: ProcessorSettings = key(ProcessorSettings, "Image processor, if `coordinates` is pixels_resized.")
    withhold: list[Literal["pixels"]] = key(list, "Content that exports omit. pixels: the images; empty: nothing.")
    allow_nd: bool = key(False, "Whether exports with pixels include sources whose licence forbids derivatives (ND).")
    audited: bool = key(False, "If true, exported test splits have only queries that were accepted in medground.audit.")

    @constraint
    def _a_pipeline_is_given(self) -> None:
        if self.entities == "scispacy" and not self.scispacy.pipeline:
            problem = "scispacy.pipeline is empty, but entities is scispacy"
            raise ValueError(f"{problem}: give the folder of a spaCy pipeline")


class ScoringSettings(Section):
    """IoU and Semantic Sensitivity of the answers."""

    tau: Share = key(0.5, "IoU above which an answer is correct; the paper does not state its value.")


class ScoringOptions(ScoringSettings):
    """Settings that affect the scores, and the number of bootstrap replicates for the scores' intervals."""

    replicates: int = 1000

"""Settings of the stage medground_dataset."""

from typing import Literal

from cxr.base.settings import Section, constraint, key


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

    @constraint
    def _a_pipeline_is_given(self) -> None:
        if self.entities == "scispacy" and not self.scispacy.pipeline:
            problem = "scispacy.pipeline is empty, but entities is scispacy"
            raise ValueError(f"{problem}: give the folder of a spaCy pipeline")

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

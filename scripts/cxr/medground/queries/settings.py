"""Settings of the stage medground_queries."""

from typing import Literal

from cxr.base.settings import PAPER, Section, Share, constraint, key
from cxr.medground.asking.settings import GeneratorSettings

Family = Literal["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"]


class QueriesSettings(Section):
    """Referring queries."""

    @constraint
    def _a_table_is_given(self) -> None:
        if self.engine == "table" and not self.table:
            raise ValueError("table is empty, but engine is table: give the file of the texts")

    @constraint
    def _a_model_is_given(self) -> None:
        if self.engine == "vllm" and not self.llm.model:
            raise ValueError("llm.model is empty, but engine is vllm: give a model that takes images")
        if self.llm.form == "question_answer" and self.selection == "ours":
            raise ValueError("llm.form is question_answer, in which a model chooses targets: set selection to model")

    engine: Literal["rules", "vllm", "table"] = key(
        "rules",
        "rules: a grammar that writes decidable queries; vllm: a language model that sees the image; table: texts of "
        "your own.",
    )
    selection: Literal["ours", "model"] = key(
        "ours",
        "ours: decidable targets are sampled, and the language model words them; model: it chooses the targets, as in "
        "the paper (engine vllm).",
    )
    llm: GeneratorSettings = key(GeneratorSettings, "The language model of the engine vllm.")
    table: str = key(
        "",
        "The texts of the engine table: JSON Lines with image_id, query, and regions or boxes (grid of 1000); or a "
        "folder with a file {image_id}.txt of `Question:` and `Answer:` lines for each image.",
    )
    per_image: int = key(3, "Number of queries per image.", ge=1, le=100)
    per_image_many: int = key(6, "Number of queries per image with more than `many` candidates.", ge=1, le=100)
    many: int = key(5, "Number of candidates above which an image gets `per_image_many` queries.", ge=1)
    fragile: Share = key(
        0.25,
        "Largest fraction of an image's queries that may become undecidable when outlines are shifted by "
        "`medground.regions.outline_px`. Queries whose answer changes are never used.",
    )
    words: float = key(12, "Mean number of words to which queries are lengthened.", source=PAPER, ge=4, le=40)
    families: list[Family] = key(
        lambda: ["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"],
        "Families of attributes that queries use.",
        min_length=1,
    )

"""Settings of the paraphrase stage."""

from typing import Literal, get_args

from cxr.base.settings import PAPER, Section, constraint, key, redefine
from cxr.llm.settings import LanguageModel

Persona = Literal["medical_expert", "layperson", "ai_developer"]
RULES_WORDINGS = 3  # wordings of a persona in resources/paraphrase/wordings.yaml


class ParaphraseLlm(LanguageModel):
    """Settings of the language model of the engine vllm. The paper does not name its model."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 1024)


class WordingSettings(Section):
    """Settings that select the engine, the personas and the number of wordings."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "Source of the wordings. rules: a file of templates, without a model; vllm: a language model."
    )
    personas: list[Persona] = key(
        lambda: list(get_args(Persona)), "Personas in whose style to reword instructions.", source=PAPER, min_length=1
    )
    per_persona: int = key(
        RULES_WORDINGS, "Wordings per instruction and persona. The engine `rules` has at most three.", source=PAPER,
        unit="wordings", ge=1, le=20,
    )  # fmt: skip

    @constraint
    def _each_persona_once(self) -> None:
        if len(set(self.personas)) < len(self.personas):
            raise ValueError("personas lists a persona twice: remove one of them")
        if self.engine == "rules" and self.per_persona > RULES_WORDINGS:
            raise ValueError(
                f"per_persona is {self.per_persona}, but the engine rules has {RULES_WORDINGS} wordings for each "
                "persona: lower per_persona, or set engine to vllm"
            )


class ParaphraseSettings(WordingSettings):
    """Settings of the paraphrases of instructions (C.3)."""

    llm: ParaphraseLlm = key(ParaphraseLlm, "The language model of the engine vllm.")


class ParaphraseOptions(WordingSettings):
    """Settings that affect the wordings."""

    language_model: dict = key(dict, "Settings of the language model that affect its answers.")

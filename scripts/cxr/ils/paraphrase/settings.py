"""Settings of the paraphrase stage."""

from typing import Literal, get_args

from cxr.base.settings import PAPER, Section, constraint, key, redefine
from cxr.llm.settings import LanguageModel

Persona = Literal["medical_expert", "layperson", "ai_developer"]
RULES_WORDINGS = 3  # wordings of a persona in resources/paraphrase/wordings.yaml


class ParaphraseLlm(LanguageModel):
    """The language model of the engine vllm; the paper does not name its model."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 1024)


class WordingSettings(Section):
    """Engine and number of the wordings."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "rules: fixed wordings, no download; vllm: a language model whose answers are parsed and checked."
    )
    personas: list[Persona] = key(
        lambda: list(get_args(Persona)), "Personas whose style the wordings imitate.", source=PAPER, min_length=1
    )
    per_persona: int = key(
        RULES_WORDINGS, "Wordings per persona; the engine rules has three.", source=PAPER, unit="wordings", ge=1, le=20
    )

    @constraint
    def _each_persona_once(self) -> None:
        if len(set(self.personas)) < len(self.personas):
            raise ValueError("personas names one twice: name each once")
        if self.engine == "rules" and self.per_persona > RULES_WORDINGS:
            raise ValueError(
                f"per_persona is {self.per_persona}, but the engine rules has {RULES_WORDINGS} wordings for each "
                "persona: lower it, or set engine to vllm"
            )


class ParaphraseSettings(WordingSettings):
    """Other wordings of the instructions (C.3)."""

    llm: ParaphraseLlm = key(ParaphraseLlm, "The language model of the engine vllm.")


class ParaphraseOptions(WordingSettings):
    """Settings that affect the wordings."""

    language_model: dict = key(dict, "Settings of the language model that affect its answers.")

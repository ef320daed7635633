"""Settings of MedGround's language models, which see images."""

from pathlib import Path
from typing import Literal

from cxr.base.settings import Address, Section, key
from cxr.llm.settings import Execution, LanguageModel, context, max_tokens, revision


class ModelsExecution(Execution):
    """How both models are run."""

    judge_server: Address = key("", "Address of the judge's server (transport server); empty: that of server.")


class ModelsSettings(LanguageModel):
    """How the model that words queries and the judge are asked."""

    transport: Literal["offline", "server"] = key(
        "offline", "offline: vLLM inside the job; server: a running OpenAI-compatible server."
    )
    context: int = context()
    max_tokens: int = max_tokens(2048)
    picture_tokens: int = key(
        1600, "Most tokens that the model makes of one image; longer questions are not asked.", unit="tokens", ge=1
    )
    prompts: str = key("", "A YAML file with other wordings, of the keys of resources/medground/prompts.yaml.")
    execution: ModelsExecution = key(ModelsExecution, "How the models are run.")


class ImageModelSettings(Section):
    """A language model that takes images. None is chosen: the paper names no generator, and its judge is closed."""

    model: str = key("", "Hugging Face id or folder of a model that takes images; without one the engine stops.")
    revision: str = revision("")

    @property
    def model_revision(self) -> tuple[str, str]:
        """The model and, unless it is a folder, its revision."""
        return self.model, "" if Path(self.model).is_dir() else self.revision


class GeneratorSettings(ImageModelSettings):
    """The model that words queries."""

    temperature: float = key(0.7, "Temperature of the first answer; 0 is greedy.", ge=0, le=2)
    form: Literal["json", "question_answer"] = key(
        "json",
        "json: answers under a schema; question_answer: the paper's `Question:` and `Answer:` lines, unconstrained, "
        "with prompts that ask for them; its boxes must be exact copies.",
    )

"""Settings of RadVLM's conversations: turns about the facts of one image."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, revision

Rounds = Annotated[int, Limits(ge=1, le=50)]


class ConversationLlm(Asking, LanguageModel):
    """The language model of the engine vllm; the paper used GPT-4o-mini, and GPT-4o for test."""

    train_model: str = key("", "Model of train and validate; empty: that of radvlm.filtered.llm.")
    test_model: str = key("", "Model of test, whose conversations are scored; empty: that of radvlm.filtered.llm.")
    train_revision: str = revision("")
    test_revision: str = revision("")
    context: int = context()
    max_tokens: int = max_tokens(2048, AUTHORS)
    temperature: float = key(0.7, "Temperature of the first answer; 0 is greedy.", ge=0, le=2)
    execution: Execution = key(Execution, "How the model is run.")


class Conversations(Section):
    """Turns about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "rules: a grammar over the facts, no download; vllm: a language model, held to the same check."
    )
    llm: ConversationLlm = key(ConversationLlm, "The language model of the engine vllm.")
    rounds: list[Rounds] = key(
        lambda: [5, 10], "Least and most rounds.", source=PAPER, unit="rounds", min_length=2, max_length=2
    )
    per_image: int = key(1, "Conversations of each kind that an image gets.", source=PAPER, ge=1, le=100)
    most: int = key(
        100_000, "Most images of train with a standard conversation, drawn by stable hash.", source=AUTHORS, ge=0
    )
    check: Literal["strict", "json"] = key(
        "strict",
        "strict: form, boxes and statements are held against the facts; json: what parses is taken, as the authors' "
        "code does.",
    )
    retries: int = key(4, "How often the engine rules walks again after a conversation that fails.", ge=0, le=20)
    segment_turns: bool = key(True, "Whether masks are asked for where the dataset has them.")

    @constraint
    def _rising(self) -> None:
        if self.rounds[0] > self.rounds[1]:
            raise ValueError(f"rounds is {self.rounds}, whose least exceeds its most: swap them")

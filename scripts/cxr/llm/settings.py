"""Settings of language models, for the stages that have an engine vllm."""

from typing import Any, Literal

from cxr.base.settings import OURS, Address, Section, Share, constraint, key


class LanguageModel(Section):
    """One language model at a pinned revision, and its limits in tokens."""

    @constraint
    def _answer_fits(self: Any) -> None:  # subclasses declare the fields
        if self.max_tokens >= self.context:
            raise ValueError(f"max_tokens is {self.max_tokens}, which fills context ({self.context}): lower it")


def model(name: str, source: str = OURS):
    """Declare the setting of the model."""
    return key(name, "Hugging Face id or folder of the model.", source=source, min_length=1)


def revision(commit: str):
    """Declare the setting of the pinned revision."""
    return key(commit, "Commit of the model's repository; empty for a folder.")


def context():
    """Declare the setting of the context length."""
    return key(16384, "Maximum length of prompt and answer together.", unit="tokens", ge=1024, le=1_000_000)


def max_tokens(tokens: int, source: str = OURS):
    """Declare the setting of the answers' length."""
    return key(tokens, "Maximum length of an answer.", unit="tokens", source=source, ge=16, le=1_000_000)


class Asking(Section):
    """How language models are asked: every answer depends on it."""

    transport: Literal["offline", "server"] = key(
        "offline", "offline: vLLM inside the job; server: a running OpenAI-compatible server."
    )
    temperature: float = key(0.0, "Sampling temperature of the first answer; 0 is greedy.", ge=0, le=2)


class Execution(Section):
    """How language models run. No answer depends on it, so a change re-runs nothing."""

    gpus: int = key(
        1, "GPUs of one job; the model is split over them; 0: the CPU (transport offline).", unit="GPUs", ge=0, le=64
    )
    gpu_memory: Share = key(0.9, "Fraction of each GPU's memory that is used (transport offline).")
    server: Address = key(
        "http://localhost:8000/v1",
        "Address of the running server (transport server); its key is read from OPENAI_API_KEY.",
    )
    requests: int = key(32, "Number of concurrent requests (transport server).", unit="requests", ge=1, le=1024)
    remote_ok: bool = key(
        False,
        "Whether patients' texts and images may be sent to a server outside this machine and its private network "
        "(transport server).",
    )

"""Settings of language models, for the stages that have an engine vllm."""

from typing import Literal

from pydantic import model_validator

from cxr.workflow.settings.base import OURS, Address, Section, Share, key


class LanguageModel(Section):
    """One language model, pinned, and how long its answers may be."""

    @model_validator(mode="after")
    def _answer_fits(self) -> "LanguageModel":
        if self.max_tokens >= self.context:
            raise ValueError(f"max_tokens is {self.max_tokens}, which fills context ({self.context}): lower it")
        return self


def model(name: str, source: str = OURS):
    """Declare which model."""
    return key(name, "Hugging Face id, or the folder of the model.", source=source, min_length=1)


def revision(commit: str):
    """Declare its pin."""
    return key(commit, "Commit of the model's repository; empty for a folder.")


def context():
    """Declare its length."""
    return key(16384, "Longest prompt and answer together.", unit="tokens", ge=1024, le=1_000_000)


def max_tokens(tokens: int):
    """Declare the length of its answers."""
    return key(tokens, "Longest answer.", unit="tokens", ge=16, le=1_000_000)


class Asking(Section):
    """How language models are asked: every answer depends on it."""

    transport: Literal["offline", "server"] = key(
        "offline", "offline: vLLM inside the job; server: a running OpenAI-compatible server."
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = key("auto", "Number type of the weights.")
    temperature: float = key(0.0, "Temperature of the first answer; 0 is greedy.", ge=0, le=2)
    retries: int = key(
        2, "How many times the model is asked again after an answer that breaks schema or logic.", ge=0, le=20
    )
    retry_temperature: float = key(
        0.5, "Temperature when it is asked again; greedy decoding would repeat itself.", ge=0, le=2
    )


class Execution(Section):
    """How language models are run, not what they are asked: a change re-runs nothing."""

    gpus: int = key(1, "GPUs of one job; the model is split over them (transport offline).", unit="GPUs", ge=0, le=64)
    gpu_memory: Share = key(0.9, "Fraction of each GPU's memory to use (transport offline).")
    eager: bool = key(False, "Do not compile graphs: slower answers, a faster start (transport offline).")
    server: Address = key(
        "http://localhost:8000/v1", "Address of the running server (transport server); its key: OPENAI_API_KEY."
    )
    requests: int = key(32, "Requests at a time (transport server).", unit="requests", ge=1, le=1024)
    timeout_s: int = key(600, "How long one request may take (transport server).", unit="s", ge=1)
    remote_ok: bool = key(
        False,
        "Whether patients' texts and pictures may be sent to a server outside this machine and its private network "
        "(transport server).",
    )

"""Settings of language models: how they are reached and run, and which model a stage asks."""

from typing import Literal

from cxr.base.settings import PAPER, Address, Section, Share, key, redefine


class LlmSettings(Section):
    """How language models are reached and run. Answers depend on ``transport`` and ``context`` alone."""

    transport: Literal["offline", "server"] = key(
        "offline", "offline: vLLM inside the job; server: a running OpenAI-compatible server. A change asks again."
    )
    context: int = key(
        16384, "Maximum length of prompt and answer. A change asks again.", unit="tokens", ge=1024, le=1_000_000
    )
    gpus: int = key(
        1, "GPUs of one job, over which the model is split; 0: the CPU (transport offline).", unit="GPUs", ge=0, le=64
    )
    gpu_memory: Share = key(0.9, "Fraction of each GPU's memory that vLLM takes (transport offline).")
    server: Address = key(
        "http://localhost:8000/v1", "Address of the running server (transport server); its key: OPENAI_API_KEY."
    )
    servers: dict[str, Address] = key(dict, "{model: address} of models with a server of their own.")
    requests: int = key(32, "Number of concurrent requests (transport server).", unit="requests", ge=1, le=1024)
    remote_ok: bool = key(
        False, "Whether patients' texts and images may be sent to a server outside this private network."
    )


class LanguageModel(Section):
    """One language model at a pinned revision; by default the one with which the paper structures a report."""

    model: str = key(
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Hugging Face id or folder.", source=PAPER, min_length=1
    )
    revision: str = key(
        "68faf511d618ef198fef186659617cfd2eb8e33a", "Commit of the model's repository; empty for a folder."
    )
    max_tokens: int = key(4096, "Maximum length of an answer; a longer one fails.", unit="tokens", ge=16, le=1_000_000)
    temperature: float = key(0.0, "Sampling temperature of the first answer; 0 is greedy.", ge=0, le=2)


class ModelOverride(Section):
    """Another language model than that of the system's section ``llm``."""

    model: str = key("", "Hugging Face id or folder of another model; empty: that of the system's section llm.")
    revision: str = redefine(LanguageModel, "revision", "")

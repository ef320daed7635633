"""Options of a language model: those that an answer depends on, and how the model runs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

RETRIES = 2  # number of retries after an answer that breaks the schema or the logic
RETRY_TEMPERATURE = 0.5  # lowest temperature of a retry: greedy decoding would repeat the answer
TIMEOUT_S = 600  # time limit of one request to a server, seconds


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The settings of a model that an answer depends on.

    key: settings section of the model, for messages; pictures: maximum images per question; picture_tokens: maximum
    tokens that the model makes of one image.
    """

    key: str
    transport: str
    model: str
    revision: str
    context: int
    max_tokens: int
    temperature: float
    seed: int
    dtype: str = "auto"
    retries: int = RETRIES
    retry_temperature: float = RETRY_TEMPERATURE
    pictures: int = 0
    picture_tokens: int = 0

    @property
    def name(self) -> str:
        """Model and revision, as stored in results."""
        pinned = self.revision and not Path(self.model).is_dir()
        return f"{self.model}@{self.revision}" if pinned else self.model

    def sampling(self, attempt: int, seed: int | None = None) -> tuple[float, int]:
        """Return temperature and seed (default: the options') of an attempt; the first is greedy by default."""
        temperature = max(self.temperature, self.retry_temperature) if attempt else self.temperature
        return temperature, (self.seed if seed is None else seed) + attempt


@dataclass(frozen=True)
class Execution:
    """How a model runs (settings of the section ``llm``); no answer depends on it.

    server_key: setting of the server's address, for messages; remote_ok: patients' texts and images may be sent to a
    server outside this machine and its private network.
    """

    gpus: int
    gpu_memory: float
    server: str
    requests: int
    server_key: str = "llm.server"
    timeout_s: int = TIMEOUT_S
    remote_ok: bool = False

    @property
    def remote_key(self) -> str:
        """The setting that allows a server outside the private network, for messages."""
        return f"{self.server_key.rpartition('.')[0]}.remote_ok"

    @classmethod
    def from_settings(cls, settings: Mapping, model: str) -> "Execution":
        """Return how ``model`` runs; its address in ``servers`` takes precedence."""
        address = settings.get("servers", {}).get(model)
        server = {"server": address, "server_key": "llm.servers"} if address else {}
        names = [field.name for field in fields(cls) if field.name in settings]
        return cls(**{name: settings[name] for name in names} | server)

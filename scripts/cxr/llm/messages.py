"""Chat messages: a prompt with its slots filled, and pictures, in the form that a transport sends."""

from collections.abc import Mapping, Sequence

from cxr.llm.guards import in_slots
from cxr.llm.pictures import Picture

Messages = list[dict[str, str | list[str | Picture]]]
"""Chat messages: ``role``, and ``content``, a text or a list of texts and pictures in their order."""


def filled(prompt: Mapping[str, str], pictures: Sequence[Picture] = (), **slots: str) -> Messages:
    """Return the messages of a prompt (``system``, ``user``), the user's with its slots ``{name}`` filled.

    ``pictures`` come before the user's text: questions about the same ones begin alike, and a server keeps what it has
    made of that beginning.
    """
    user = in_slots(prompt["user"], **slots)
    content = [*pictures, user] if pictures else user
    return [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": content}]


def parts_of(messages: Messages) -> list[str | Picture]:
    """Return all texts and pictures of messages, in their order."""
    parts = []
    for message in messages:
        content = message["content"]
        parts += [content] if isinstance(content, str) else content
    return parts


def for_server(messages: Messages) -> list[dict]:
    """Return messages as an OpenAI-compatible server takes them, pictures as data URLs."""
    return _sent(messages, lambda picture: {"type": "image_url", "image_url": {"url": picture.data_url()}})


def for_vllm(messages: Messages) -> list[dict]:
    """Return messages as vLLM takes them in the job, pictures as PIL images."""
    return _sent(messages, lambda picture: {"type": "image_pil", "image_pil": picture.image()})


def _sent(messages: Messages, shown) -> list[dict]:
    def part(given: str | Picture) -> dict:
        return {"type": "text", "text": given} if isinstance(given, str) else shown(given)

    # a text alone stays a text: some chat templates know nothing else
    return [
        message if isinstance(message["content"], str) else message | {"content": list(map(part, message["content"]))}
        for message in messages
    ]

"""Building chat messages from a prompt, slot values and images, in the form that each transport sends."""

from collections.abc import Mapping, Sequence

from cxr.llm.guards import in_slots
from cxr.llm.pictures import Picture

Messages = list[dict[str, str | list[str | Picture]]]
"""Chat messages: ``role``, and ``content``, which is a text or an ordered list of texts and images."""


def filled(prompt: Mapping[str, str], pictures: Sequence[Picture] = (), **slots: str) -> Messages:
    """Return the messages of a prompt (``system``, ``user``), the user's with its slots ``{name}`` filled.

    ``pictures`` come before the user's text: questions about the same images then share a prefix, which a server
    caches.
    """
    user = in_slots(prompt["user"], **slots)
    content = [*pictures, user] if pictures else user
    return [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": content}]


def parts_of(messages: Messages) -> list[str | Picture]:
    """Return all texts and images of messages, in order."""
    parts = []
    for message in messages:
        content = message["content"]
        parts += [content] if isinstance(content, str) else content
    return parts


def for_server(messages: Messages) -> list[dict]:
    """Return messages for an OpenAI-compatible server, images as data URLs."""
    return _sent(messages, lambda picture: {"type": "image_url", "image_url": {"url": picture.data_url()}})


def for_vllm(messages: Messages) -> list[dict]:
    """Return messages for vLLM inside the job, images as PIL images."""
    return _sent(messages, lambda picture: {"type": "image_pil", "image_pil": picture.image()})


def _sent(messages: Messages, picture_part) -> list[dict]:
    def part(text_or_picture: str | Picture) -> dict:
        return (
            {"type": "text", "text": text_or_picture}
            if isinstance(text_or_picture, str)
            else picture_part(text_or_picture)
        )

    # a text alone stays a plain text: some chat templates accept nothing else
    return [
        message if isinstance(message["content"], str) else message | {"content": list(map(part, message["content"]))}
        for message in messages
    ]

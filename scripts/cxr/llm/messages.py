"""Chat messages built from a prompt, slot values and images, in the form that each transport sends."""

from collections.abc import Callable, Mapping, Sequence

from cxr.llm.guards import fill_slots
from cxr.llm.images import PromptImage

Messages = list[dict[str, str | list[str | PromptImage]]]
"""Chat messages: ``role`` and ``content``, which is a text or an ordered list of texts and images."""


def fill_prompt(prompt: Mapping[str, str], images: Sequence[PromptImage] = (), **slots: str) -> Messages:
    """Return the messages of a prompt (``system``, ``user``) with the slots ``{name}`` of the user's text filled.

    ``images`` come before the user's text: questions about the same images then share a prefix that a server caches.
    """
    user = fill_slots(prompt["user"], **slots)
    content: str | list[str | PromptImage] = [*images, user] if images else user
    return [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": content}]


def content_parts(messages: Messages) -> list[str | PromptImage]:
    """Return all texts and images of messages, in order."""
    parts: list[str | PromptImage] = []
    for message in messages:
        content = message["content"]
        parts += [content] if isinstance(content, str) else content
    return parts


def server_messages(messages: Messages) -> list[dict]:
    """Return messages for an OpenAI-compatible server, images as data URLs."""
    return _convert(messages, lambda image: {"type": "image_url", "image_url": {"url": image.data_url()}})


def vllm_messages(messages: Messages) -> list[dict]:
    """Return messages for vLLM inside the job, images as PIL images."""
    return _convert(messages, lambda image: {"type": "image_pil", "image_pil": image.to_pil()})


def _convert(messages: Messages, convert_image: Callable[[PromptImage], dict]) -> list[dict]:
    def convert(part: str | PromptImage) -> dict:
        return {"type": "text", "text": part} if isinstance(part, str) else convert_image(part)

    # content of one text stays a plain string: some chat templates accept nothing else
    return [
        message
        if isinstance(message["content"], str)
        else message | {"content": list(map(convert, message["content"]))}
        for message in messages
    ]

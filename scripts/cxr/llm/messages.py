"""Chat messages built from a prompt, slot values and images, and their conversion for each transport.

An image is a file or an array. It is sent to a server as a data URL, and to vLLM inside the job as a PIL image.
"""

import base64
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.llm.guards import fill_slots

MEDIA = {"PNG": "image/png", "JPEG": "image/jpeg"}  # formats that every server reads
IMAGE_MODES = ("L", "RGB", "P", "1")  # PIL modes of images with at most 8 bits per channel and no transparency


@dataclass(frozen=True, eq=False)
class PromptImage:
    """An image in a prompt. It is a PNG or JPEG file, or a uint8 array, either grey (H, W) or RGB (H, W, 3)."""

    source: Path | np.ndarray

    def __post_init__(self) -> None:
        if isinstance(self.source, Path):
            return
        shape = self.source.shape
        if self.source.dtype != np.uint8 or not self.source.size or (len(shape) != 2 and shape[2:] != (3,)):
            array_type = f"{self.source.dtype} {shape}"
            raise ValueError(f"an image must be uint8 (rows, columns) or (rows, columns, 3), not {array_type}")

    def data_url(self) -> str:
        """Return a data URL of the file's bytes, or of the array as PNG. Raises UserError like :meth:`to_pil`."""
        if isinstance(self.source, Path):
            media, data = MEDIA[self._open().format], self.source.read_bytes()
        else:
            buffer = io.BytesIO()
            self._open().save(buffer, "PNG")
            media, data = MEDIA["PNG"], buffer.getvalue()
        return f"data:{media};base64,{base64.b64encode(data).decode('ascii')}"

    def digest(self) -> str:
        """Return a digest of the image as it is sent. Raises UserError like :meth:`to_pil`."""
        array = None if isinstance(self.source, Path) else self.source
        content = self.data_url().encode("ascii") if array is None else f"{array.shape}".encode() + array.tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def to_pil(self):
        """Return the image in RGB. Raises UserError unless a file is an intact 8-bit PNG or JPEG."""
        return self._open().convert("RGB")

    def _open(self):
        from PIL import Image

        if not isinstance(self.source, Path):
            return Image.fromarray(self.source)
        try:
            image = Image.open(self.source, formats=list(MEDIA))
            image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            refuse_machine_fault(self.source, error)
            message = f"{self.source} is not a readable PNG or JPEG ({type(error).__name__}): give a PNG or JPEG image"
            raise UserError(message) from None
        if image.mode not in IMAGE_MODES:
            raise UserError(
                f"{self.source} has the PIL mode {image.mode}, which models may decode differently: give it as 8-bit "
                "grey or RGB"
            )
        return image


Messages = list[dict[str, str | list[str | PromptImage]]]
"""Chat messages. Each has a ``role`` and a ``content``, which is a text or an ordered list of texts and images."""


def fill_prompt(prompt: Mapping[str, str], images: Sequence[PromptImage] = (), **slots: str) -> Messages:
    """Return a prompt's messages with the slots filled. Images come first, so that a server can cache them."""
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
    """Convert messages for an OpenAI-compatible server, with images as data URLs."""
    return _convert(messages, lambda image: {"type": "image_url", "image_url": {"url": image.data_url()}})


def vllm_messages(messages: Messages) -> list[dict]:
    """Convert messages for vLLM inside the job, with images as PIL images."""
    return _convert(messages, lambda image: {"type": "image_pil", "image_pil": image.to_pil()})


def _convert(messages: Messages, convert_image: Callable[[PromptImage], dict]) -> list[dict]:
    def convert(part: str | PromptImage) -> dict:
        return {"type": "text", "text": part} if isinstance(part, str) else convert_image(part)

    # a content that is a single text stays a plain string, because some chat templates accept nothing else
    return [
        each if isinstance(content := each["content"], str) else each | {"content": list(map(convert, content))}
        for each in messages
    ]

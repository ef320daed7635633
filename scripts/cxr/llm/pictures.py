"""Images of a question: a file or an array, as a data URL for a server and as a PIL image for vLLM in the job."""

import base64
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cxr.base.errors import UserError, refuse_machine_fault

MEDIA = {"PNG": "image/png", "JPEG": "image/jpeg"}
"""Formats that every server reads."""
MODES = ("L", "RGB", "P", "1")
"""PIL's modes of images with at most 8 bits per channel and no transparency."""


@dataclass(frozen=True, eq=False)
class Picture:
    """An image: the path of a PNG or JPEG, or a uint8 array, (rows, columns) grey or (rows, columns, 3) RGB.

    Raises ValueError for other arrays. A file is read when it is sent.
    """

    source: Path | np.ndarray

    def __post_init__(self) -> None:
        if isinstance(self.source, Path):
            return
        shape = self.source.shape
        if self.source.dtype != np.uint8 or not self.source.size or (len(shape) != 2 and shape[2:] != (3,)):
            array_type = f"{self.source.dtype} {shape}"
            raise ValueError(f"a picture is uint8 (rows, columns) or (rows, columns, 3), not {array_type}")

    def data_url(self) -> str:
        """Return the image as a data URL: a file's own bytes, an array as PNG. Raises UserError like :meth:`image`."""
        if isinstance(self.source, Path):
            media, data = MEDIA[self._opened().format], self.source.read_bytes()
        else:
            buffer = io.BytesIO()
            self._opened().save(buffer, "PNG")
            media, data = MEDIA["PNG"], buffer.getvalue()
        return f"data:{media};base64,{base64.b64encode(data).decode('ascii')}"

    def digest(self) -> str:
        """Return a digest of what is sent. Raises UserError like :meth:`image`."""
        array = None if isinstance(self.source, Path) else self.source
        content = self.data_url().encode("ascii") if array is None else f"{array.shape}".encode() + array.tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def image(self):
        """Return the image as a PIL image in RGB.

        Raises UserError for a file that is missing, damaged, neither PNG nor JPEG, or has more than 8 bits.
        """
        return self._opened().convert("RGB")

    def _opened(self):
        from PIL import Image

        if not isinstance(self.source, Path):
            return Image.fromarray(self.source)
        try:
            picture = Image.open(self.source, formats=list(MEDIA))
            picture.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            refuse_machine_fault(self.source, error)
            error_name = type(error).__name__
            raise UserError(
                f"{self.source} is no readable PNG or JPEG ({error_name}): give a picture that is"
            ) from None
        if picture.mode not in MODES:
            raise UserError(
                f"{self.source} is of PIL's mode {picture.mode}, which a model may show as something else: give it as "
                "8-bit grey or RGB"
            )
        return picture

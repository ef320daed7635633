"""Parts of pages that need no server and no network: pictures as text, data that no browser runs, hashes of code."""

import base64
import hashlib
import json

import cv2
import numpy as np

from cxr.plotting.encoding import encoded


def picture_bytes(image: np.ndarray, jpeg_quality: int) -> tuple[str, bytes]:
    """Encode a grey picture, uint8 (H, W); returns media type and bytes. Quality 0 is PNG, which is lossless."""
    if jpeg_quality:
        return "image/jpeg", encoded(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality])
    return "image/png", encoded(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])


def mask_bytes(mask: np.ndarray) -> bytes:
    """Encode a mask, bool (H, W), as PNG with one bit per pixel."""
    parameters = [cv2.IMWRITE_PNG_BILEVEL, 1, cv2.IMWRITE_PNG_COMPRESSION, 9]
    return encoded(".png", mask.astype(np.uint8) * 255, parameters)


def data_url(kind: str, data: bytes) -> str:
    """Return bytes of a media type as an address that holds them."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def inert(data: dict) -> str:
    """Return JSON that remains data inside a script element, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hash_of(text: str) -> str:
    """Return the hash of a script or style by which a content security policy allows it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""Pictures within a page, so that the page is one file."""

from base64 import b64encode
from pathlib import Path


def data_url(path: str | Path) -> str:
    """Return a PNG or JPEG file as an address that holds it."""
    kind = {".png": "png", ".jpg": "jpeg"}[Path(path).suffix]
    return f"data:image/{kind};base64,{b64encode(Path(path).read_bytes()).decode()}"

"""Settings of the published weights."""

from typing import Annotated

from cxr.base.settings import Limits, Section, key

Sha256 = Annotated[str, Limits(pattern=r"^[0-9a-f]{64}$")]


class WeightsSettings(Section):
    """Published weights of the engines with a large net (docs/how-to/models.md)."""

    folder: str = key("weights", "Folder of the weights files that you download yourself, such as hybridgnet.pt.")
    sha256: dict[str, Sha256] = key(
        dict,
        "SHA-256 digests that weights files must have, besides the built-in ones, such as {cxas.pth: digest, "
        "radedit/unet/config.json: digest}.",
    )

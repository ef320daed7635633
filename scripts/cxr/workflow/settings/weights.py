"""Settings of the published weights."""

from typing import Annotated

from pydantic import Field

from cxr.workflow.settings.base import Section, key

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Weights(Section):
    """Published weights of the engines with a large net (docs/how-to/models.md)."""

    folder: str = key("weights", "Folder of the files that are placed by hand, hybridgnet.pt and the like.")
    sha256: dict[str, Sha256] = key(
        dict,
        "Digests that files must have, beyond those pinned already: {cxas.pth: sha256, "
        "radedit/unet/config.json: sha256}.",
    )

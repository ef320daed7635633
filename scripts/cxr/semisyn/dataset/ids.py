"""Names of patients, studies and images in the exports: their own, or keyed digests like a release's."""

from collections.abc import Mapping

from cxr.base.digests import keyed
from cxr.base.secrets import secret

IDS = ("subject_id", "study_id", "image_id")


class ExportIds:
    """Gives the names under which an export tells patients, studies and images.

    ``salt``: file of the secret key of the digests; "" for the names themselves. The key is the release's, so that both
    give the same names.
    """

    def __init__(self, salt: str = ""):
        self._key = secret("release.salt", salt) if salt else b""

    def of_image(self, facts: Mapping) -> dict[str, str]:
        """Return the ids among ``facts`` as they are told."""
        return {
            name: keyed(self._key, name, facts[name]) if self._key else facts[name] for name in IDS if name in facts
        }

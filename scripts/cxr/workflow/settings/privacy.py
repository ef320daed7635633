"""Settings of privacy: what identifies a person is removed from texts and images."""

from typing import Literal

from cxr.workflow.settings.base import Section, key


class Privacy(Section):
    """What identifies a person is removed from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Report texts. scrub: names, addresses, dates, telephone and record numbers become surrogates of the same "
        "form, signatures and markup are removed; keep: as they are, for texts that their publisher has de-identified.",
    )
    least_subjects: int = key(
        5,
        "Where report_text is withheld (release.withhold), pages and tables list an unknown word only if reports of "
        "this many subjects have it.",
        unit="subjects",
        ge=1,
    )

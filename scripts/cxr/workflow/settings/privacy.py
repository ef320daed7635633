"""Settings of privacy: what identifies a person is removed from texts and images."""

from typing import Literal

from cxr.base.settings import Section, key


class Privacy(Section):
    """What identifies a person is removed from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Report texts. scrub: names, addresses, dates, telephone and record numbers become surrogates of the same "
        "form, signatures and markup are removed; keep: as they are, for texts that their publisher has de-identified.",
    )
    burned_in: Literal["black_out", "exclude", "keep"] = key(
        "black_out",
        "Text that is burned into images, found by reading them (0.6 s an image on one core). black_out: its boxes "
        "become black, until no text is left; exclude: such images are excluded; keep: images are not read, as their "
        "publisher has de-identified. Markers (L, AP, ERECT) stay. The embedded cohort is not read.",
    )
    least_subjects: int = key(
        5,
        "Where report_text is withheld (release.withhold), pages and tables list an unknown word only if reports of "
        "this many subjects have it.",
        unit="subjects",
        ge=1,
    )

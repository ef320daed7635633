"""Settings of the phrases that are mined from reports."""

from cxr.base.settings import Section, key


class Prompts(Section):
    """Phrases mined from the cohort's reports, for a person to review."""

    least_patients: int = key(2, "Fewest patients of a phrase; those of fewer are left out.", ge=2, le=1000)
    least_phrases: int = key(
        3, "Fewest phrases of a finding; one with fewer keeps the prompts that it has.", ge=1, le=1000
    )
    most: int = key(40, "Most phrases of a finding, by their weight.", ge=1, le=10_000)
    reference: str = key(
        "", "Reference of semisyn.references whose phrases are the second pool, such as MS-CXR; empty: reports alone."
    )

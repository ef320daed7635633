"""Settings of the stage semisyn_prompts."""

from cxr.base.settings import Section, key


class PromptsSettings(Section):
    """Phrases mined from the cohort's reports, for a person to review."""

    least_patients: int = key(2, "Smallest number of patients of a phrase.", ge=2, le=1000)
    reference: str = key("", "Reference in semisyn.references with more phrases, such as MS-CXR; empty: reports only.")

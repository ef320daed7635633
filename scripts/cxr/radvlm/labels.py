"""The 14 labels of a study, from the findings that the reports stage has read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.language.reports.devices import Devices, devices

RESOURCE_FILES = ("radvlm/labels.yaml",)
PRESENT, ABSENT, UNCERTAIN = VALUES = ("present", "absent", "uncertain")
"""What a source states of a label, the strongest first."""


@dataclass(frozen=True)
class Names:
    """names: the 14 labels in their order; no_finding, device: the two that are none of the twelve findings; lesions,
    entities: {what a report's finding is: its labels}; words: those of devices; regions: {region: its mask, and part}.
    """

    names: tuple[str, ...]
    no_finding: str
    device: str
    lesions: Mapping[str, Sequence[str]]
    entities: Mapping[str, Sequence[str]]
    words: Devices
    regions: Mapping[str, Mapping]

    @property
    def findings(self) -> tuple[str, ...]:
        """The twelve labels that make a picture abnormal."""
        return tuple(name for name in self.names if name not in (self.no_finding, self.device))


@cache
def names() -> Names:
    """Return the names of the resource."""
    resource = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    return Names(
        tuple(resource["labels"]), resource["no_finding"], resource["devices"], resource["lesions"],
        resource["entities"], devices(resource["device_words"]), resource["regions"],
    )  # fmt: skip


def report_labels(tuples: Iterable[Mapping], sentences: Iterable[str]) -> dict[str, str]:
    """Return {label: present, absent or uncertain} of a report's findings and its sentences.

    A finding is present if it is affirmed, also as what another finding strongly stands for ("opacity consistent with
    pneumonia"); weakly hedged it is uncertain. It is absent if it is denied and nowhere affirmed. What a report does
    not mention has no label, but No Finding and Support Devices are always told.
    """
    label_resource, stated = names(), {}
    for finding in tuples:
        for label, value in _label_values(finding, label_resource):
            previous_value = stated.get(label, value)
            stated[label] = min(value, previous_value, key=_strength)
    stated[label_resource.device] = PRESENT if label_resource.words.told_in(sentences) else ABSENT
    stated[label_resource.no_finding] = _no_finding(stated)
    return {label: stated[label] for label in label_resource.names if label in stated}


def meant(stated: Mapping[str, str], uncertain: str) -> dict[str, str]:
    """Return what the stated labels count as: an uncertain one as ``uncertain``; with left_out it stays uncertain.

    No Finding then holds where no finding is present, whatever the source states of it.
    """
    label_resource, replacements = names(), {UNCERTAIN: uncertain} if uncertain in VALUES else {}
    value_by_label = {label: replacements.get(value, value) for label, value in stated.items()}
    return value_by_label | (
        {label_resource.no_finding: _no_finding(value_by_label)} if label_resource.no_finding in value_by_label else {}
    )


def _no_finding(values: Mapping[str, str]) -> str:
    """Return the value of No Finding: devices do not count, nor do findings that nothing is said of."""
    finding_values = {values[label] for label in names().findings if label in values}
    return ABSENT if PRESENT in finding_values else UNCERTAIN if UNCERTAIN in finding_values else PRESENT


def _strength(value: str) -> int:
    """Return the rank of a value: an affirmation outweighs a doubt, and that a denial."""
    return (PRESENT, UNCERTAIN, ABSENT).index(value)


def _label_values(finding: Mapping, label_resource: Names) -> list[tuple[str, str]]:
    finding_labels = (
        label_resource.lesions.get(finding["lesion_type"])
        if finding["lesion_type"]
        else label_resource.entities.get(finding["entity"])
    )
    if finding["presence"] == "negative":
        return [(label, ABSENT) for label in finding_labels or ()] if finding["denies"] else []
    value = UNCERTAIN if finding["hedge"] == "weak" else PRESENT
    label_values = [(label, value) for label in finding_labels or ()]
    if finding["predicted_hedge"] in ("definite", "strong"):
        candidate_labels = (
            label_resource.lesions.get(name) or label_resource.entities.get(name) or ()
            for name in finding["candidates"]
        )
        label_values += [(label, value) for labels in candidate_labels for label in labels]
    return label_values

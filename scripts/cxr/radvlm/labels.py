"""The 14 CheXpert labels of a study, derived from the findings of its report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.language.reports.devices import Devices, compile_devices

RESOURCE_FILES = ("radvlm/labels.yaml",)
PRESENT, ABSENT, UNCERTAIN = VALUES = ("present", "absent", "uncertain")  # values of a label


@dataclass(frozen=True)
class LabelNames:
    """Names of labels, and the findings and words from which they are derived (``resources/radvlm/labels.yaml``)."""

    names: tuple[str, ...]  # the 14 labels, in order
    no_finding: str  # label of images without a finding
    device: str  # label of support devices
    lesions: Mapping[str, tuple[str, ...]]  # {lesion type: its labels}
    entities: Mapping[str, tuple[str, ...]]  # {entity of a report's finding: its labels}
    words: Devices  # words for support devices
    regions: Mapping[str, Mapping]  # {region: its mask, and the part of the mask's box}

    @property
    def findings(self) -> tuple[str, ...]:
        """The twelve labels of findings, which are all labels but "No Finding" and "Support Devices"."""
        return tuple(name for name in self.names if name not in (self.no_finding, self.device))


@cache
def load_label_names() -> LabelNames:
    """Return the names of labels, which are loaded once per process."""
    resource = load_resource(RESOURCE_FILES[0])
    labels_by_lesion = {lesion.name: lesion.labels for lesion in LESION_TYPES}
    labels_by_entity = {name: tuple(labels) for name, labels in resource["entities"].items()}
    return LabelNames(
        tuple(resource["labels"]), resource["no_finding"], resource["devices"], labels_by_lesion,
        labels_by_entity, compile_devices(resource["device_words"]), resource["regions"],
    )  # fmt: skip


def label_report(tuples: Iterable[Mapping], sentences: Iterable[str]) -> dict[str, str]:
    """Return {label: present, absent or uncertain} for a report.

    ``tuples``: findings from the rules engine; ``sentences``: sentences of the report, searched for devices. Affirmed
    findings are present, including confident interpretations ("opacity consistent with pneumonia"). Weakly hedged
    findings ("possible") are uncertain. Findings that are denied and never affirmed are absent. Findings that the
    report does not mention have no label. "No Finding" and "Support Devices" always have a value.
    """
    label_resource, stated = load_label_names(), {}
    for finding in tuples:
        is_negative = finding["presence"] == "negative"
        if is_negative and not finding["denies"]:
            continue
        value = ABSENT if is_negative else UNCERTAIN if finding["hedge"] == "weak" else PRESENT
        labels = finding_labels(finding["lesion_type"], finding["entity"])
        if not is_negative and finding["predicted_hedge"] in ("definite", "strong"):
            labels = labels.union(*(finding_labels(name, name) for name in finding["candidates"]))
        for label in labels:
            stated[label] = min(value, stated.get(label, value), key=(PRESENT, UNCERTAIN, ABSENT).index)
    stated[label_resource.device] = PRESENT if label_resource.words.are_stated_in(sentences) else ABSENT
    stated[label_resource.no_finding] = _no_finding(stated)
    return {label: stated[label] for label in label_resource.names if label in stated}


def resolve_uncertain(stated: Mapping[str, str], uncertain: str) -> dict[str, str]:
    """Replace the value "uncertain" by the argument ``uncertain``, unless this is "left_out". Return {label: value}.

    ``stated``: {label: value} of the source. If it contains "No Finding", its value is derived from the other labels.
    """
    label_resource, replacements = load_label_names(), {UNCERTAIN: uncertain} if uncertain in VALUES else {}
    value_by_label = {label: replacements.get(value, value) for label, value in stated.items()}
    if label_resource.no_finding in value_by_label:
        value_by_label[label_resource.no_finding] = _no_finding(value_by_label)
    return value_by_label


def finding_labels(lesion: str | None, entity: str) -> frozenset[str]:
    """Return the labels of a finding's lesion type or, if it has none, of ``entity``, its name in the lexicon."""
    label_names = load_label_names()
    return frozenset(label_names.lesions.get(lesion or "") or label_names.entities.get(entity) or ())


def _no_finding(values: Mapping[str, str]) -> str:
    finding_values = {values[label] for label in load_label_names().findings if label in values}
    return ABSENT if PRESENT in finding_values else UNCERTAIN if UNCERTAIN in finding_values else PRESENT

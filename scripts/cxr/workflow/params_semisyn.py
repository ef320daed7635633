"""Convert the settings of SemiSynCXR to each rule's params: builtins, and for each stage only its own keys."""

from cxr.base.vocabulary import SPLITS
from cxr.workflow.settings.semisyn.dataset import EMBEDDED_PER_FINDING, PER_FINDING


def semisyn_options(plain: dict) -> dict[str, dict]:
    """Return {target: options}: the settings of each stage of SemiSynCXR, its findings and the seed.

    ``plain``: all settings as builtins.
    """
    system = plain["semisyn"]
    shared = {"seed": plain["seed"], "findings": system["findings"]}
    stages = {f"semisyn_{name}": keys | shared for name, keys in system.items() if isinstance(keys, dict)}
    stages.pop("semisyn_references")  # which are no stage
    return stages | {"semisyn_healthy": _healthy(plain), "semisyn_dataset": _dataset(plain)} | _detection(plain)


def _detection(plain: dict) -> dict[str, dict]:
    """Return the options of the scores of detectors, and of their figure."""
    section = {name: key for name, key in plain["semisyn"]["detection"].items() if name != "predictions"}
    return {
        "semisyn_detection": section | {"seed": plain["seed"]},
        "semisyn_detection_charts": {"dpi": plain["figures"]["dpi"], "against": section["against"]},
    }


def _dataset(plain: dict) -> dict:
    """Return what the dataset's tables depend on: images of each finding, and sizes in images of all findings."""
    section, findings = plain["semisyn"]["dataset"], plain["semisyn"]["findings"]
    embedded = plain["cohort"]["source"] == "embedded"
    each = section["per_finding"] or (EMBEDDED_PER_FINDING if embedded else PER_FINDING)
    parts = sorted({max(1, each // 5), max(1, each // 2), each})
    sizes = [part * len(findings) for part in parts] if section["sizes"] == "auto" else section["sizes"]
    return {"per_finding": each, "sizes": sizes, "findings": findings, "validation": section["validation"],
            "seed": plain["seed"]}  # fmt: skip


def _healthy(plain: dict) -> dict:
    """Return the options of the pool, which does not depend on findings and seed; only its classifier's own section."""
    section = dict(plain["semisyn"]["healthy"])
    embedded = plain["cohort"]["source"] == "embedded"
    sections = {name: section.pop(name) for name in ("lite", "table")}
    section["own"] = sections["lite"] if section["classifier"] == "lite" else {}  # the table's file is an input
    section["splits"] = section["splits"] or (list(SPLITS) if embedded else [SPLITS[0]])
    if section["devices"] == "auto":
        section["devices"] = "any" if embedded else "not_positive"
    section.pop("chexpert")  # an input too
    return section

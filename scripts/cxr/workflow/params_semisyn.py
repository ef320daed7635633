"""Convert the settings of SemiSynCXR to each rule's params: builtins, and for each stage only its own keys."""

from collections.abc import Mapping

from cxr.base.vocabulary import SPLITS
from cxr.workflow.settings.semisyn import Semisyn
from cxr.workflow.settings.semisyn.configs import EditingConfig
from cxr.workflow.settings.semisyn.dataset import EMBEDDED_PER_FINDING, PER_FINDING
from cxr.workflow.settings.semisyn.detectors import EMBEDDED_SEEDS, EMBEDDED_UPDATES, SEEDS, UPDATES
from cxr.workflow.settings.semisyn.priors import Priors

FITS = ("alpha", "bins", "min_boxes", "families", "far", "overshoot_percentile", "sizes")
"""Keys of the section ``priors`` that only a fit of boxes depends on."""
ZONES = ("zones_image_id", "zones_percentiles", "zones_patients")
"""Those that only a fit of zones depends on."""

ENGINES = ("lite", "radedit", "diffusion")
"""Engines of the editing; each has a section of its name."""


def semisyn_options(system: Semisyn, plain: dict) -> dict[str, dict]:
    """Return {target: options}: the settings of each stage of SemiSynCXR, its findings and the seed.

    ``system``: its settings; ``plain``: all settings as builtins.
    """
    sections = plain["semisyn"]
    shared = {"seed": plain["seed"], "findings": sections["findings"]}
    stages = {f"semisyn_{name}": keys | shared for name, keys in sections.items() if isinstance(keys, dict)}
    stages.pop("semisyn_references", None)  # which are no stage
    return (
        stages
        | {"semisyn_healthy": _healthy(plain), "semisyn_dataset": _dataset(plain)}
        | _detection(plain)
        | {"semisyn_detectors": _detectors(plain)}
        | _priors(plain)
        | _placement(plain)
        | _edited(system, plain)
        | _readers(plain)
        | _prompts(plain)
    )


def _detectors(plain: dict) -> dict:
    """Return what all runs of detectors have in common; only the chosen engine's section."""
    system = plain["semisyn"]
    section = dict(system["detectors"])
    embedded = plain["cohort"]["source"] == "embedded"
    for name, embedded_default, default in (("updates", EMBEDDED_UPDATES, UPDATES), ("seeds", EMBEDDED_SEEDS, SEEDS)):
        section[name] = section[name] or (embedded_default if embedded else default)
    if section["budget"] == "epochs":
        section["updates"] = 0  # which follow from the images
    return (
        {name: section[name] for name in ("engine", "budget", "updates", "epochs", "seeds", "points")}
        | {"own": section[section["engine"]], "findings": system["findings"], "seed": plain["seed"]}
        | {"kind": system["dataset"]["boxes"], "target": system["dataset"]["target"]}
        | {"per_finding": system["dataset"]["per_finding"]}
    )


def _detection(plain: dict) -> dict[str, dict]:
    """Return the options of the scores of detectors, and of their figure."""
    section = {
        name: key for name, key in plain["semisyn"]["detection"].items() if name not in ("predictions", "synthetic")
    }
    return {
        "semisyn_detection": section | {"seed": plain["seed"], "findings": plain["semisyn"]["findings"]},
        "semisyn_detection_charts": {"dpi": plain["figures"]["dpi"], "against": section["against"]},
    }


def _readers(plain: dict) -> dict[str, dict]:
    """Return the options of the readers' images, of their pages, of their sheets and of their tables."""
    system = plain["semisyn"]
    section, key = system["readers"], "semisyn.readers"
    reference = _reference(system, section["reference"])
    bootstrap_options = {name: section[name] for name in ("replicates", "interval", "seed")}
    return {
        "semisyn_readers": {
            "images": section["images"],
            "seed": section["seed"],
            "findings": system["findings"],
            "reference": reference,
        },
        "semisyn_readers_pages": {
            "experts": section["experts"],
            "form": "readers",
            "seed": section["seed"],
            "fewer": f"lower {key}.images",
            "synthetic": plain["cohort"]["source"] == "embedded",
        },
        "semisyn_readers_answers": {"form": "readers", "setting": f"{key}.sheets"},
        "semisyn_readers_tables": bootstrap_options | {"readers": len(section["experts"])},
    }


def _prompts(plain: dict) -> dict[str, dict]:
    """Return the options of the mined phrases, which nothing is drawn for."""
    system = plain["semisyn"]
    options = system["prompts"] | {"reference": _reference(system, system["prompts"]["reference"])}
    return {"semisyn_prompts": options | {"findings": system["findings"]}}


def _reference(system: dict, name: str) -> dict:
    """Return what a stage is told of a reference; the table of its patients is for other cohorts' images."""
    reference = {"name": name} | dict(system["references"].get(name, {}))
    for unused in ("patients", "images"):
        reference.pop(unused, None)
    return reference


def _dataset(plain: dict) -> dict:
    """Return what the dataset's tables depend on; sizes and conventions are the exports' alone."""
    system = plain["semisyn"]
    return {
        "findings": system["findings"],
        "validation": system["dataset"]["validation"],
        "seed": plain["seed"],
    }


def _edited(system: Semisyn, plain: dict) -> dict[str, dict]:
    """Return the options of the editing, of its scores and of the choice of configurations."""
    sections, compared = plain["semisyn"], system.compared
    section, realism, selection_section = (sections[name] for name in ("editing", "realism", "selection"))
    shared = {"seed": plain["seed"], "findings": sections["findings"]}
    configs = {name: config.as_dict() for name, config in compared.items()} | section["configs"]
    editing = {name: section[name] for name in ("max_leak", "visible", "choice")}
    editing |= {"configs": configs, "own": {name: section[name] for name in ENGINES}}
    editing |= {"parts": selection_section["parts"]}
    engines = {"detector": plain["boxes"]["engine"], "classifier": sections["healthy"]["classifier"]}
    selection = {name: selection_section[name] for name in ("metrics", "interval", "samples")}
    selection |= {"configs": {name: configs[name] for name in compared}, "same_as": same_as(compared)}
    scores = {name: value for name, value in realism.items() if name not in ("features", "clip")}
    real = {"reference": _reference(sections, realism["reference"]), "findings": sections["findings"]}
    return {
        "semisyn_editing": editing | shared,
        "semisyn_measures": {"classes": realism["classes"]},
        "semisyn_realism": scores | shared | engines,
        "semisyn_realism_reference": real,
        "semisyn_selection": selection | {"dpi": plain["figures"]["dpi"]},
    }


def same_as(configs: Mapping[str, EditingConfig]) -> dict[str, str]:
    """Return {configuration: the one before it that makes the same images}; the latter alone is edited."""
    first: dict[tuple, str] = {}
    duplicates = {}
    for name, config in configs.items():
        if (earlier_name := first.setdefault(config.effective(), name)) != name:
            duplicates[name] = earlier_name
    return duplicates


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


def _priors(plain: dict) -> dict[str, dict]:
    """Return the options of the priors, and of their figure; what a fit depends on is the default without a fit."""
    section, unused = dict(plain["semisyn"]["priors"]), Priors().as_dict()
    section.pop("zones_table")  # an input
    if section["source"] != "fit":
        section |= {name: unused[name] for name in (*FITS, "reference")}
    if section["zones"] != "fit":
        section |= {name: unused[name] for name in ZONES}
    reference = plain["semisyn"]["references"].get(section["reference"], {"format": "", "image_id": "", "classes": {}})
    section |= {name: reference[name] for name in ("format", "image_id", "classes")}
    fitted = "fit" in (section["source"], section["zones"])
    section |= {"organs": plain["organs"]["engine"] if fitted else "", "findings": plain["semisyn"]["findings"]}
    chart = {"dpi": plain["figures"]["dpi"], "findings": plain["semisyn"]["findings"], "seed": plain["seed"]}
    return {"semisyn_priors": section, "semisyn_priors_chart": chart}


def _placement(plain: dict) -> dict[str, dict]:
    """Return the options of the plan of all jobs, and of the placement of their boxes."""
    section, seed = dict(plain["semisyn"]["placement"]), plain["seed"]
    jobs = {
        "per_finding": plain["semisyn"]["dataset"]["per_finding"],
        "sizes": plain["semisyn"]["dataset"]["sizes"],
        "default_most": EMBEDDED_PER_FINDING if plain["cohort"]["source"] == "embedded" else PER_FINDING,
        "most_per_image": section.pop("most_per_image"),
        "spare": section.pop("spare"),
        "samples": plain["semisyn"]["selection"]["samples"],
        "findings": plain["semisyn"]["findings"],
        "seed": seed,
    }
    return {"semisyn_placement_plan": jobs, "semisyn_placement": section | {"seed": seed}}

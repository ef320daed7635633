"""Drawn scenes and queries for the tests of MedGround's logic, and a scene as the plain lists of its oracle."""

import random
from dataclasses import asdict, replace

import numpy as np

from cxr.medground.logic.atoms import LogicOptions, evaluate_atoms
from cxr.medground.logic.decide import AXES, RELATIONS, Query, Reference
from cxr.medground.logic.scene import ClassWords, Scene

NUMBERS = LogicOptions()
ZONES = ("left lung base", "right lung base")
CLASSES = {
    "a": ClassWords("nucleus", "nuclei", {"cell": "cells"}), "b": ClassWords("rod", "rods", {"cell": "cells"}),
    "c": ClassWords("heart", "hearts"),
}  # fmt: skip


def drawn_scene(seed: int) -> Scene:
    """Return a scene of 1 to 14 regions; some values lie exactly on edges, some are unknown."""
    r = random.Random(seed)
    n = r.randint(1, 14)
    tied = (lambda values: r.choice(values)) if r.random() < 0.5 else (lambda values: r.uniform(0, 1))
    steps = [i / 20 for i in range(21)]
    masks = r.random() < 0.7
    many = {(i, j): r.choice([0.0, 0.3, 0.4, 0.5, 1.0]) for i in range(n) for j in range(n) if i != j}
    area = np.array([r.choice([20, 63, 64, 100, 120, 144, 1000, 5000]) for _ in range(n)], float)

    def drawn(values, unknown=0.1):
        return np.array([np.nan if r.random() < unknown else r.choice(values) for _ in range(n)])

    return Scene(
        label=[r.choice("abc") for _ in range(n)],
        area=area,
        area_ratio=np.array(
            [r.choice([0.001, 0.00425, 0.005, 0.006, 0.02, 0.0345, 0.08, 0.15, 0.3]) for _ in range(n)]
        ),
        cx=np.array([tied(steps) for _ in range(n)]),
        cy=np.array([tied(steps) for _ in range(n)]),
        elongation=drawn([0.0, 0.2, 0.25, 0.3, 0.4, 0.45, 0.5, 0.55, 0.9]),
        solidity=drawn([0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]),
        contrast=drawn([-2.0, -0.8, -0.5, 0.0, 0.3, 0.55, 0.8, 1.5]),
        texture=drawn([0.5, 0.77, 1.0, 1.3, 2.0]),
        edge_gap=np.array([r.choice([0.0, 0.0, 0.01, 0.05, 0.2, 0.4]) for _ in range(n)]),
        candidate=np.array([r.random() < 0.9 for _ in range(n)]),
        classes=CLASSES,
        domain=r.choice(["nuclei", "cxr", "other"]),
        radiological=r.choice([True, False, None]),
        zones=ZONES,
        shares=np.array([[r.choice([0.0, 0.29, 0.3, 0.45, 0.5, 0.9]) for _ in ZONES] for _ in range(n)]),
        within={pair: share for pair, share in many.items() if share} if masks else None,
        open_classes=frozenset("b" if r.random() < 0.2 else ""),
        extent=r.choice([(0.0, 0.0, 1.0, 1.0), (0.1, 0.0, 0.9, 1.0)]),
    )


def drawn_query(scene: Scene, r: random.Random) -> Query:
    """Return a query of the atoms that a scene offers."""
    atoms = sorted(evaluate_atoms(scene, NUMBERS))

    def some(most):
        return tuple(sorted(r.sample(atoms, min(len(atoms), r.randint(0, most)))))

    related = r.random() < 0.6
    reference = Reference(some(2), r.choice(["", *AXES])) if related else None
    kind = r.choice([*RELATIONS, ""]) if related else ""
    ordinal = "nearest" if related and not kind else r.choice(["", "", *AXES])
    nth = r.choice([1, 1, 2, 3]) if ordinal in AXES else 1
    return Query(some(3), kind, reference, ordinal, nth, r.choice([0] * 7 + [1, 2, 3]))


def scene_as_lists(scene: Scene) -> dict:
    """Return a scene as the oracle's plain lists."""
    names = ("area", "area_ratio", "cx", "cy", "elongation", "solidity", "contrast", "texture", "edge_gap")
    lists = {name: getattr(scene, name).tolist() for name in names}
    zones = [] if scene.shares is None else [dict(zip(scene.zones, row, strict=True)) for row in scene.shares.tolist()]
    return lists | {
        "label": list(scene.label),
        "words": {name: {one.one, *one.parents} for name, one in scene.classes.items()},
        "radiological": scene.radiological,
        "zones": zones,
        "within": scene.within,
        "open": scene.open_classes,
        "extent": scene.extent,
    }


def query_as_dict(query: Query) -> dict:
    """Return a query as the oracle's dict."""
    return asdict(query)


def numbers() -> dict:
    """Return the numbers of the logic by name."""
    return asdict(NUMBERS)


def without_margin(numbers: LogicOptions) -> LogicOptions:
    """Return the numbers with the margin of positions taken away: a wrong logic, for sabotage."""
    return replace(numbers, position_margin=0.0)


def queried(logic: dict) -> Query:
    """Return the query that a line's field ``logic`` tells."""
    reference = logic["reference"] and Reference(tuple(logic["reference"]["atoms"]), logic["reference"]["ordinal"])
    return Query(tuple(logic["atoms"]), logic["relation"], reference, logic["ordinal"], logic["nth"], logic["number"])

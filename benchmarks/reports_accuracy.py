"""How well a reports engine does on labelled reports and sentences.

    python benchmarks/reports_accuracy.py REPORTS.jsonl [--cases CASES.jsonl] [--half dev|check] [--errors N]

REPORTS: one report a line: findings, impression, lesions (list of the seven), gold (list of {lesion, sides, zones,
zone_family, side_implied}), text_group (reports of one text: kept in one half and resampled together).
CASES: one sentence a line: report, expected (list of tuples), alternatives. The text scored is findings, newline,
impression. A lesion counts as found where an affirmed tuple of it, or a disease that explains one, is not weakly
hedged.
"""

import argparse
import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from ils.core.labels import LESIONS  # noqa: E402
from ils.reports import engine  # noqa: E402
from ils.reports.rules import sentences  # noqa: E402

FAMILY = {
    "lung base": "lower",
    "lower lobe": "lower",
    "mid zone": "mid",
    "middle lobe": "mid",
    "upper": "upper",
    "apical": "upper",
}
SKIP = "cardiomegaly"
"""A lesion without side or zone."""
WAYS = {"weak dropped": ("definite", "strong"), "all": ("definite", "strong", "weak"), "definite only": ("definite",)}


@dataclass(frozen=True)
class EngineOptions:
    """What the rules engine asks for."""

    lexicon: str = str(ROOT / "resources" / "lexicon")
    effusion_without_side: str = "both_bases"


def read(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def half_of(report: dict) -> str:
    """Say whether a report is for development or for the check: equal texts always fall together."""
    group = str(report.get("text_group") or report["findings"] + report["impression"])
    return "dev" if hashlib.md5(group.encode()).digest()[-1] % 2 == 0 else "check"


def text_of(report: dict) -> str:
    return f"{report.get('findings') or ''}\n{report.get('impression') or ''}"


def tuples_of(structure, text: str) -> list[dict]:
    return structure([text[a:b] for a, b in sentences.split(text)])


def worse(first: str, second: str | None) -> str:
    grades = ("definite", "strong", "weak")
    return max(first, second or "definite", key=grades.index)


def found_lesions(tuples: list[dict], grades: tuple[str, ...]) -> dict[str, list[dict]]:
    """Return {lesion: its tuples} of what the engine affirms at these grades."""
    found: dict[str, list[dict]] = {}
    for item in tuples:
        if item["presence"] != "positive":
            continue
        if item["lesion_type"] and item["hedge"] in grades:
            found.setdefault(item["lesion_type"], []).append(item)
        if worse(item["hedge"], item["predicted_hedge"]) in grades:
            for lesion in item["candidates"]:
                if lesion in LESIONS:
                    found.setdefault(lesion, []).append(item)
    return found


def sides_of(tuples: list[dict]) -> set[str]:
    words = {word for item in tuples for label in item["labels"] or item["block"] for word in label.split()}
    return words & {"left", "right"}


def families_of(tuples: list[dict]) -> set[str]:
    texts = [label for item in tuples for label in item["labels"]]
    texts += ["lung base" for item in tuples if item["category"] == "lateral view location"]
    return {family for text in texts for word, family in FAMILY.items() if word in text}


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def scores(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall, F1 of counts (..., 3) = true positive, false positive, false negative."""
    tp, fp, fn = np.moveaxis(counts.astype(float), -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)


def count(reports: list[dict], answers: list[list[dict]], grades: tuple[str, ...]) -> np.ndarray:
    """Return int (reports, 7 lesions, 3): true positive, false positive, false negative."""
    counts = np.zeros((len(reports), len(LESIONS), 3), int)
    for row, (report, tuples) in enumerate(zip(reports, answers, strict=True)):
        found = found_lesions(tuples, grades)
        for column, lesion in enumerate(LESIONS):
            gold, ours = lesion in report["lesions"], lesion in found
            counts[row, column] = gold and ours, ours and not gold, gold and not ours
    return counts


def places(reports: list[dict], answers: list[list[dict]]) -> np.ndarray:
    """Return int (reports, 7 lesions, 4): sides right, sides told, zone families right, zone families told."""
    table = np.zeros((len(reports), len(LESIONS), 4), int)
    for row, (report, tuples) in enumerate(zip(reports, answers, strict=True)):
        found = found_lesions(tuples, WAYS["weak dropped"])
        for column, lesion in enumerate(LESIONS):
            gold = [g for g in report["gold"] if g["lesion"] == lesion]
            sides = {s for g in gold for s in g["sides"]}
            zones = {z for g in gold for z in g["zone_family"]}
            if lesion == SKIP or lesion not in found:
                continue
            if sides and not any(g.get("side_implied") for g in gold):
                table[row, column, :2] = sides_of(found[lesion]) == sides, 1
            if zones:
                table[row, column, 2:] = families_of(found[lesion]) == zones, 1
    return table


def resample(groups: list[str], rounds: int) -> np.ndarray:
    """Return int (rounds, reports): how often each report is drawn when groups of equal texts are drawn with return."""
    names, index = np.unique(groups, return_inverse=True)
    draws = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), size=rounds)
    return draws[:, index]


def interval(values: np.ndarray) -> str:
    values = values[np.isfinite(values)]
    return "{:.3f}-{:.3f}".format(*np.percentile(values, [2.5, 97.5])) if len(values) else "-"


def report_table(reports: list[dict], answers: list[list[dict]], rounds: int) -> dict[str, float]:
    """Print the table; return its main numbers by name."""
    weights = resample([str(r.get("text_group", i)) for i, r in enumerate(reports)], rounds)
    main = {}
    for way, grades in WAYS.items():
        counts = count(reports, answers, grades)
        precision, recall, f1 = scores(counts.sum((0, 1)))
        lesion_f1 = scores(counts.sum(0))[2]
        drawn = np.einsum("br,rlc->blc", weights, counts)
        micro, macro = scores(drawn.sum(1))[2], np.nanmean(scores(drawn)[2], axis=1)
        print(
            f"{way:14} P {precision:.3f}  R {recall:.3f}  micro-F1 {f1:.3f} ({interval(micro)})  "
            f"macro-F1 {np.nanmean(lesion_f1):.3f} ({interval(macro)})"
        )
        main[way] = {"precision": precision, "recall": recall, "micro": f1, "macro": float(np.nanmean(lesion_f1))}
    counts, where = count(reports, answers, WAYS["weak dropped"]), places(reports, answers)
    drawn = np.einsum("br,rlc->blc", weights, counts)
    print(f"\n{'lesion':14} {'n':>4}  P     R     F1    95 %         sides      zones")
    for column, lesion in enumerate(LESIONS):
        p, r, f = scores(counts[:, column].sum(0))
        a, b, c, d = where[:, column].sum(0)
        n = counts[:, column, [0, 2]].sum()
        print(f"{lesion:14} {n:4}  {p:.3f} {r:.3f} {f:.3f} {interval(scores(drawn[:, column])[2])}  {a}/{b}  {c}/{d}")
    total = where.sum((0, 1))
    drawn_places = np.einsum("br,rc->bc", weights, where.sum(1)).astype(float)
    for name, k in (("laterality", 0), ("zone_family", 2)):
        value = ratio(total[k], total[k + 1])
        main[name] = value
        with np.errstate(divide="ignore", invalid="ignore"):
            print(
                f"{name} exact {value:.3f} ({interval(drawn_places[:, k] / drawn_places[:, k + 1])}) n={total[k + 1]}"
            )
    return main


def same_tuple(ours: dict, expected: dict) -> bool:
    """Tell whether a tuple of ours is the expected one; keys that the case leaves out are not compared."""
    names = {expected["entity"].lower(), *(name.lower() for name in expected.get("entity_alts", []))}
    seven = ours["lesion_type"] is not None and ours["lesion_type"] == expected.get("lesion")
    own = ours["entity"].lower()
    if not seven and not any(own in name or name in own for name in names):
        return False
    pairs = [("lesion", "lesion_type"), ("sentence_index", "sentence_index"), ("presence", "presence")]
    if any(key in expected and expected[key] != ours[mine] for key, mine in pairs):
        return False
    if not expected.get("certainty_free") and expected.get("certainty", ours["certainty"]) != ours["certainty"]:
        return False
    if "labels15" in expected:
        accepted = [set(expected["labels15"])] + ([set(expected["labels15_alt"])] if "labels15_alt" in expected else [])
        if set(ours["labels"]) not in accepted:
            return False
    if expected.get("category17", ours["category"]) != ours["category"]:
        return False
    if "predicted_lesion_type" in expected:
        wanted = expected["predicted_lesion_type"] or []
        wanted = {wanted} if isinstance(wanted, str) else set(wanted)
        return {w.replace("pleural effusion", "effusion") for w in wanted} == set(ours["candidates"])
    return True


def case_right(case: dict, tuples: list[dict]) -> bool:
    """Tell whether the tuples are one of the accepted readings of a sentence, in any order."""
    for reading in [case["expected"], *case["alternatives"]]:
        rest = list(tuples)
        for expected in reading:
            match = next((item for item in rest if same_tuple(item, expected)), None)
            if match is None:
                break
            rest.remove(match)
        else:
            if not rest:
                return True
    return False


def show_errors(reports: list[dict], answers: list[list[dict]], limit: int) -> None:
    """Print reports whose lesions differ, with what was found where."""
    for report, tuples in zip(reports, answers, strict=True):
        ours, gold = set(found_lesions(tuples, WAYS["weak dropped"])), set(report["lesions"])
        if ours == gold or limit <= 0:
            continue
        limit -= 1
        print(f"\n[{report.get('uid')}] missed {sorted(gold - ours)} extra {sorted(ours - gold)}\n{text_of(report)}")
        for item in tuples:
            keys = ("sentence_index", "entity", "presence", "hedge", "predicted_hedge", "candidates", "labels")
            print("   ", *(item[key] for key in keys))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports")
    parser.add_argument("--cases")
    parser.add_argument("--half", choices=("dev", "check"))
    parser.add_argument("--errors", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1000)
    args = parser.parse_args()
    structure = engine.load("rules", EngineOptions())
    reports = [r for r in read(args.reports) if args.half in (None, half_of(r))]
    began = time.perf_counter()
    answers = [tuples_of(structure, text_of(report)) for report in reports]
    seconds = time.perf_counter() - began
    report_table(reports, answers, args.rounds)
    print(f"{len(reports)} reports, {len(reports) / seconds:.0f} a second on one core")
    if args.cases:
        cases = read(args.cases)
        right = [case_right(case, tuples_of(structure, case["report"])) for case in cases]
        print(f"sentences wholly right {sum(right)} of {len(cases)} = {ratio(sum(right), len(cases)):.3f}")
        for case, good in zip(cases, right, strict=True):
            if not good and args.errors:
                print("   ", case["id"], case["report"], *tuples_of(structure, case["report"]), sep="\n        ")
    if args.errors:
        show_errors(reports, answers, args.errors)


if __name__ == "__main__":
    main()

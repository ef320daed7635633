"""Measure the accuracy of a reports engine on labelled reports and sentences, and show its errors.

    python benchmarks/reports_accuracy.py REPORTS.jsonl [--cases CASES.jsonl] [--folds 5] [--browser errors.html]
    python benchmarks/reports_accuracy.py --clinical TEXTS.jsonl [--unread-every 5] [--browser errors.html]
    python benchmarks/reports_accuracy.py --results results/reports --browser reports.html

* REPORTS: one report per line, with findings, impression and lesions (any of the seven lesion types). Optional keys are
  gold (list of {lesion, sides, zone_family, side_implied}) and text_group. Reports with the same text share a
  text_group, stay in one fold and are resampled together. The scored text is findings, newline, impression.
* CASES: one sentence per line, with report, expected (list of tuples) and alternatives.
* TEXTS: one text per line with its ground truth, see benchmarks/reports_clinical.py. With --unread-every 5, each fifth
  text is a test text: its scores are printed separately, and its errors are never shown.

A lesion counts as found if an affirmed tuple of it, or of a disease that explains it, is not weakly hedged. The engine
is not trained. The folds only show how much a score depends on the choice of reports.

The browser is one HTML page that needs no network. It shows every text with its findings in colour, errors first. It
contains the texts, so keep it as safe as the reports. --results shows the reports of a run instead of labelled reports.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import reports_browser as browser  # noqa: E402
import reports_clinical as clinical  # noqa: E402
import reports_floors as floors  # noqa: E402
import reports_labelled as labelled  # noqa: E402
import reports_scores as scores  # noqa: E402
from cxr.base.errors import UserError  # noqa: E402
from cxr.language.reports import engine, sentences  # noqa: E402
from reports_labelled import Case, Report  # noqa: E402
from reports_measures import Accuracy, Measure, fold_of, measured, of_cases  # noqa: E402

Answers = list[list[dict]]


@dataclass(frozen=True)
class EngineOptions:
    """Options of the rules engine."""

    effusion_without_side: str = "both_bases"


def load_engine() -> Callable[[list[str]], list[dict]]:
    return engine.load_engine("rules", EngineOptions())


def tuples_of(structure: Callable[[list[str]], list[dict]], text: str) -> list[dict]:
    """Return the tuples of a text; each span counts the characters of its sentence."""
    return structure(sentences_of(text))


def sentences_of(text: str) -> list[str]:
    return [text[a:b] for a, b in sentences.split_sentences(text)]


def half_of(report: Report) -> str:
    """Return "dev" or "check", the half to which a report belongs; reports with equal texts are in the same half."""
    return "dev" if hashlib.md5(report.group.encode()).digest()[-1] % 2 == 0 else "check"


# ---- what is printed -------------------------------------------------------------------------------------------------


def number(value: float, form: str = ".3f") -> str:
    return "-" if np.isnan(value) else format(value, form)


def interval(measure: Measure) -> str:
    return "-" if np.isnan(measure.low) else f"{measure.low:.3f}-{measure.high:.3f}"


def print_accuracy(found: Accuracy) -> None:
    for way, row in found.ways.items():
        cells = [f"{name} {number(row[name].value)}" for name in ("P", "R")]
        cells += [f"{name} {number(row[name].value)} ({interval(row[name])})" for name in ("micro-F1", "macro-F1")]
        print(f"{way:14} " + "  ".join(cells))
    print(f"\n{'lesion':14} {'n':>4}  P     R     F1    95 %         sides      zones")
    for lesion, row, table in zip(found.lesions, found.lesions.values(), found.place_counts, strict=True):
        (a, b), (c, d) = table
        cells = " ".join(f"{number(row[name].value):5}" for name in ("P", "R", "F1"))
        print(f"{lesion:14} {row['F1'].cases:4}  {cells} {interval(row['F1']):12} {f'{a}/{b}':10} {c}/{d}")
    for name, measure in found.places.items():
        print(f"{name} exact {number(measure.value)} ({interval(measure)}) n={measure.cases}")


def print_folds(reports: list[Report], answers: Answers, folds: int) -> None:
    """Print the main measures of each fold, with their mean and standard deviation."""
    fold = fold_of([report.group for report in reports], folds)
    names = ("micro-F1", "macro-F1", "precision, definite", "recall, all certainties")
    print(f"\n{'fold':5} {'reports':>7}  " + "  ".join(names))
    rows = []
    for k in np.unique(fold):
        own = np.flatnonzero(fold == k)
        whole = measured([reports[i] for i in own], [answers[i] for i in own], rounds=1).whole
        rows.append([whole[name].value for name in names])
        cells = "  ".join(number(v).ljust(len(name)) for v, name in zip(rows[-1], names, strict=True))
        print(f"{k + 1:<5} {len(own):7}  {cells}".rstrip())
    for column, name in enumerate(names):
        values = np.array([row[column] for row in rows if not np.isnan(row[column])])
        if len(values) > 1:
            print(f"{name} {values.mean():.3f} ± {values.std(ddof=1):.3f} over {len(values)} folds")


def print_verdicts(found: list[floors.Verdict], few: int) -> None:
    print(f"\n{'floor':24} {'asked':>6} {'found':>7}  {'95 %':12} {'n':>5}  verdict")
    for row in found:
        form = ".3f" if row.floor < 1 else ".0f"
        few_rule = row.by_interval and row.word != "no cases"
        word = row.word + (f" (fewer than {few} cases: the interval counts)" if few_rule else "")
        print(
            f"{row.name:24} {format(row.floor, form):>6} {number(row.measure.value, form):>7}  "
            f"{interval(row.measure):12} {row.measure.cases:5}  {word}"
        )


def print_errors(reports: list[Report], answers: Answers, limit: int) -> None:
    """Print up to ``limit`` reports with missed or extra lesions, and their tuples."""
    for report, tuples in zip(reports, answers, strict=True):
        ours, gold = set(scores.found_lesions(tuples)), set(report.lesions)
        if ours == gold or limit <= 0:
            continue
        limit -= 1
        print(f"\n[{report.uid}] missed {sorted(gold - ours)} extra {sorted(ours - gold)}\n{report.text}")
        for item in tuples:
            keys = ("sentence_index", "entity", "presence", "hedge", "predicted_hedge", "candidates", "labels")
            print("   ", *(item[key] for key in keys))


# ---- the command -----------------------------------------------------------------------------------------------------


def score(args: argparse.Namespace) -> browser.Page:
    """Score labelled reports and sentences; print the tables and return the browser's page."""
    reports = [r for r in labelled.read(args.reports, Report) if args.half in (None, half_of(r))]
    cases = labelled.read(args.cases, Case) if args.cases else []
    if not reports:
        raise UserError(f"{args.reports}: no report falls in the half {args.half!r}.")
    structure = load_engine()
    began = time.perf_counter()
    answers = [tuples_of(structure, report.text) for report in reports]
    speed = len(reports) / (time.perf_counter() - began)
    found = measured(reports, answers, args.rounds)
    print_accuracy(found)
    print(f"{len(reports)} reports, {speed:.0f} a second on one core")
    whole = found.whole | {"reports a second": Measure(speed, np.nan, np.nan, len(reports))}
    case_answers = [tuples_of(structure, case.report) for case in cases]
    if cases:
        right = [scores.case_right(case, tuples) for case, tuples in zip(cases, case_answers, strict=True)]
        whole["sentences"] = of_cases(right, args.rounds)
        print(
            f"sentences wholly right {sum(right)} of {len(cases)} = {whole['sentences'].value:.3f} "
            f"({interval(whole['sentences'])})"
        )
        for case, good, tuples in zip(cases, right, case_answers, strict=True):
            if not good and args.errors:
                print("   ", case.id, case.report, *tuples, sep="\n        ")
    if args.folds > 1:
        print_folds(reports, answers, args.folds)
    table = floors.read()
    f1 = {lesion: row["F1"] for lesion, row in found.lesions.items()}
    print_verdicts(floors.verdicts(whole, f1, table), table["few"])
    if args.errors:
        print_errors(reports, answers, args.errors)
    return browser.labelled_page(reports, answers, cases, case_answers, args.show)


def score_clinical(args: argparse.Namespace) -> browser.Page:
    """Score clinical texts, read as by the stage reports; print the tables and return the browser's page."""
    texts = labelled.read(args.clinical, labelled.Clinical)
    reader = clinical.reader()
    answers = [clinical.answer(text, reader) for text in texts]
    found = [clinical.score(text, answer) for text, answer in zip(texts, answers, strict=True)]
    halves = dict(clinical.halves(len(texts), args.unread_every))
    measured_ = {name: clinical.measures([found[i].row for i in own], args.rounds) for name, own in halves.items()}
    print_clinical(measured_)
    if args.errors:
        print_clinical_errors(texts, found, halves.get("read", halves["all"]), args.errors)
    table = floors.read()
    print_verdicts(floors.held(measured_["all"], table["clinical"], table["ceilings"]), table["few"])
    shown = halves.get("read", halves["all"])
    return browser.clinical_page(
        [texts[i] for i in shown], [answers[i].tuples for i in shown], [found[i].errors for i in shown], args.show
    )


def print_clinical(measured_: dict[str, dict[str, Measure]]) -> None:
    """Print each measure for each group of clinical texts: all, read (errors are shown) and unread (test texts)."""
    names = list(measured_)
    print("\n" + f"{'clinical texts':28} " + "  ".join(f"{name:26}" for name in names).rstrip())
    for measure in measured_[names[0]]:
        cells = []
        for name in names:
            row = measured_[name][measure]
            cells.append(f"{number(row.value)} ({interval(row)}) n={row.cases}".ljust(26))
        print(f"{measure:28} " + "  ".join(cells).rstrip())


def print_clinical_errors(texts, found, shown: list[int], limit: int) -> None:
    for i in [i for i in shown if found[i].errors][:limit]:
        print(f"\n[{texts[i].id}] {texts[i].text}")
        for kind, lesion, what in found[i].errors:
            print(f"    {kind} {lesion}: {what}")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="?", help="labelled reports")
    parser.add_argument("--cases", help="labelled sentences")
    parser.add_argument("--clinical", metavar="TEXTS", help="clinical texts with their ground truth")
    parser.add_argument(
        "--unread-every", type=positive, help="make each N-th clinical text a test text, which is never shown"
    )
    parser.add_argument("--half", choices=("dev", "check"), help="only one half of the reports")
    parser.add_argument("--folds", type=positive, default=5, help="folds of the reports; 1 for none")
    parser.add_argument("--errors", type=int, default=0, help="number of wrong reports to print")
    parser.add_argument("--rounds", type=positive, default=1000, help="bootstrap draws for the intervals")
    parser.add_argument("--browser", metavar="HTML", help="write the error browser")
    parser.add_argument("--show", type=positive, default=2000, help="maximum number of reports in the browser")
    parser.add_argument("--results", help="show the reports of a run: its folder results/reports, or one .jsonl in it")
    args = parser.parse_args(arguments)
    if bool(args.results) == bool(args.reports or args.clinical):
        parser.error("give labelled reports, --clinical or both; or --results")
    if args.unread_every == 1:
        parser.error("--unread-every 1 would leave no text to be read")
    if args.cases and not args.reports:
        parser.error("--cases needs labelled reports")
    if args.results and not args.browser:
        parser.error("--results needs --browser")
    try:
        if args.results:
            browser.write(args.browser, browser.results_page(Path(args.results), args.show))
        else:
            pages = [score(args)] if args.reports else []
            pages += [score_clinical(args)] if args.clinical else []
            if args.browser:
                browser.write(args.browser, pages[0] if len(pages) == 1 else browser.both(*pages))
    except UserError as error:
        sys.exit(str(error))
    if args.browser:
        print(f"\nerror browser: {args.browser}")


if __name__ == "__main__":
    main()

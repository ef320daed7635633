"""Explain one study in a text for the screen and a page with images: each stage's decision and its reason.

A box is *productive* for a finding if it meets all conditions of the paper's Algorithm 1.
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError
from cxr.base.exclusions import REASONS
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import HEART, LUNGS, ZONE_LABELS, list_failed_conditions
from cxr.geometry.boxes import CORNERS
from cxr.ils.masks.box_conditions import (
    MASKS_OUTDATED,
    MEASURED_CONDITIONS,
    format_measure,
    format_threshold,
    judge_boxes,
    thresholds_for,
)
from cxr.ils.masks.thresholds import EDEMA, GENERAL
from cxr.reporting.explain import drawing
from cxr.reporting.explain.document import Document, Mark
from cxr.reporting.explain.study import ACCEPTED, NO_RESULTS, STOPPED, Image, Outcome, Step, Study, read_study

RESOURCE_FILES = ("explain/reasons.toml",)
UNEDITED = (
    "The image was not edited, because the report states no finding that needs a mask from the anomaly map (setting "
    "anomaly.images: with_findings). Its anomaly map is empty, and its zones come from the image itself."
)
MAX_BOXES = 12
"""Maximum number of boxes listed per finding, fewest failed conditions first. Boxes beyond it are only counted."""

RESULT_HEAD = ["finding", "what", "target", "reported location", "result", "not confirmed", "boxes", "outside"]
FINDING_HEAD = ["finding", "sentence", "what", "presence", "certainty", "location", "labels", "lesion type"]
UNIT_HEAD = ["kind", "target", "certainty", "location", "findings", "mask", "becomes a pair", "lesion inference"]
WORDS = tomllib.loads((RESOURCES / "explain/reasons.toml").read_text(encoding="utf-8"))
FINDING_REASONS, BOX_MEASURES, PAIR_REASONS, BASES = (WORDS[name] for name in ("findings", "boxes", "pairs", "bases"))


def explain(results: str | Path, study: str, thresholds: Sequence[str], dpi: int) -> tuple[str, str]:
    """Return the text and the HTML page that explain a study under the threshold sets ``thresholds``.
    If ``thresholds`` is empty, all sets with masks are explained. Raises UserError for an unknown study or set."""
    document = describe_study(read_study(Path(results), study, thresholds), dpi)
    return document.to_text(), document.to_html(f"Study {study}")


def run(*, page: str, text: str, study: str, results_digest: str, dpi: int, results: str = "results") -> None:
    """Write the page and the text that explain a study under every threshold set with masks, and print the text.
    Raises UserError if ``results_digest``, a digest of the results, is "", because then no study was requested."""
    if not results_digest:
        raise UserError("explain needs a study: snakemake explain --config study=<study_id>")
    text_content, page_content = explain(results, study, (), dpi)
    for path, content in ((page, page_content), (text, text_content)):
        with atomic_file(path) as temporary:
            temporary.write_text(content, encoding="utf-8")
    sys.stdout.write(text_content)


def describe_study(study: Study, dpi: int) -> Document:
    """Return the document that explains a study. Its figures have the resolution ``dpi``."""
    document, first = Document(dpi), study.images[0]
    document.add_heading(f"Study {study.study_id}", 1)
    document.add_paragraph(f"Subject {first.row['subject_id']}, split {first.row['split'] or 'none'}.")
    for sentence in summarize_images(study):
        document.add_paragraph(sentence)
    document.add_heading("Images")
    rows = [
        [image.image_id, image.row["view"] or "unknown", image.row["shard"] or "-"]
        + [step.reason or step.state for step in image.steps]
        for image in study.images
    ]
    stages = (step.stage for step in first.steps)
    document.add_table(["image", "view", "shard", *stages], rows, "how far each image came")
    _add_report(document, study)
    for image in study.images:
        _add_maps(document, image)
    if len(study.outcomes) > 1:
        _add_comparison(document, study)
    for name, outcome_by_image in study.outcomes.items():
        for image in study.images:
            _add_outcome(document, name, image, outcome_by_image[image.image_id], study)
    if study.provenance:
        document.add_heading("Made by")
        rows = [[stage, code, settings] for stage, (code, settings) in study.provenance.items()]
        document.add_table(["stage", "code digest", "settings"], rows, "code and settings behind the arrays")
    return document


def summarize_images(study: Study) -> list[str]:
    """Return a sentence on the result of each image, or one per threshold set if the image reached the masks stage."""
    sentences = []
    for image in study.images:
        if stop := image.stop:
            sentences.append(f"{image.image_id} {describe_stop(stop)}")
        elif waits := next((step for step in image.steps if step.state == NO_RESULTS), None):
            sentences.append(f"{image.image_id} is accepted so far; {waits.stage} has no results of this image yet.")
        elif not study.outcomes:
            sentences.append(f"{image.image_id} passed every stage before masks; no threshold set has masks yet.")
        else:
            sentences += [
                f"{image.image_id} under {name}: {describe_result(outcome_by_image[image.image_id])}"
                for name, outcome_by_image in study.outcomes.items()
            ]
    return sentences


def describe_stop(step: Step) -> str:
    """Describe where and why an image was excluded, as in "stopped in frames: undecodable (…)."."""
    detail = f"; {step.detail}" if step.detail else ""
    return f"stopped in {step.stage}: {step.reason} ({REASONS[step.reason]}{detail})."


def describe_result(outcome: Outcome) -> str:
    """Return an image's result under one threshold set, such as "3 pairs, 1 positive and 2 negative."."""
    for step in outcome.steps:
        if step.state == STOPPED:
            return describe_stop(step)
        if step.state != ACCEPTED:
            return f"{step.stage} has no results of this image yet."
    positive = sum(pair["seg"] for pair in outcome.pairs)
    number = len(outcome.pairs)
    return f"{number} pair{'s' * (number != 1)}, {positive} positive and {number - positive} negative."


def _add_report(document: Document, study: Study) -> None:
    document.add_heading("Report")
    line = study.report
    if line is None:
        steps = (step for image in study.images for step in image.steps)
        stop = next((step for step in steps if (step.stage, step.state) == ("reports", STOPPED)), None)
        document.add_paragraph(f"The study {describe_stop(stop)}" if stop else "No report of this study was read.")
        return
    reason = line["handed_over"]
    because = f"; the rules passed the report to a language model ({reason})" if reason else ""
    document.add_paragraph(f"Section {line['section_name']}, read by the engine {line['engine']}{because}.")
    marks = []
    for number, finding in enumerate(line["tuples"]):
        if finding.get("span"):
            is_sure = finding["presence"] == "negative" or finding["certainty"] == "definitive"
            kind = "outside" if finding["lesion_type"] is None else finding["presence"] if is_sure else "tentative"
            marks.append(Mark(*finding["span"], kind, f"{number} {finding['presence']}"))
    document.add_marked_text(line["section_text"], marks)
    if line["tuples"]:
        document.add_table(FINDING_HEAD, _finding_rows(line["tuples"]), "findings of the report")
    if line.get("other_tuples"):
        section = f"The section {line['other_section']} was not used; its findings" if line["other_section"] else ""
        document.add_paragraph(f"{section or 'Findings of the rules'} only block negatives.")
        document.add_table(FINDING_HEAD, _finding_rows(line["other_tuples"]), "findings that only block")


def _finding_rows(findings: Sequence[dict]) -> list[list[str]]:
    rows = []
    for number, finding in enumerate(findings):
        predicted = finding.get("predicted_lesion_type")
        rows.append([
            str(number), str(finding["sentence_index"]), finding["entity"], finding["presence"],
            f"{finding['certainty']} ({finding['hedge']})", _join_labels(finding["location"]),
            _join_labels(finding["labels"], finding["category"]),
            (finding["lesion_type"] or "none of the seven") + (f", explained as {predicted}" if predicted else ""),
        ])  # fmt: skip
    return rows


def _join_labels(labels: Sequence[str] | None, otherwise: str | None = None) -> str:
    return ", ".join(labels or []) or otherwise or "-"


def _add_maps(document: Document, image: Image) -> None:
    if "image" not in image.arrays:
        return
    document.add_heading(f"Image {image.image_id}")
    for correction in image.corrections:
        document.add_paragraph(f"Its file: {correction}.")
    for title, figure in drawing.draw_maps(image.arrays, unedited=image.unedited).items():
        document.add_figure(figure, f"Image {image.image_id}: {title}", small=True)
    if image.unedited:
        document.add_paragraph(UNEDITED)
    for step in image.steps:
        if step.stage in ("organs", "anomaly", "anatomy", "boxes") and step.state == STOPPED:
            document.add_paragraph(f"The image {describe_stop(step)}")
    organs, zones = image.arrays.get("organs"), image.arrays.get("anatomy")
    if organs:
        document.add_paragraph(
            "Organs: " + ", ".join(f"{name} {int(mask.sum()):,} px" for name, mask in organs.items()) + "."
        )
    if organs and zones:
        where, distances = "image" if image.unedited else "edited image", _describe_distances(organs, zones)
        document.add_paragraph(f"Distance of the organs on the {where} from those on the image: {distances}.")
        empty = [name for name in ZONE_LABELS if not zones[name].any()]
        document.add_paragraph(f"Zones without a pixel: {_join_labels(empty, 'none')}.")
    if image.boxes:
        lowest_confidence = sorted((row["confidence"] for row in image.boxes), reverse=True)[:MAX_BOXES][-1]
        rows = [
            [str(number), row["class_name"], format_measure(row["confidence"]),
             " ".join(f"{row[name]:.0f}" for name in CORNERS), "yes" if row["is_used"] else "no"]
            for number, row in enumerate(image.boxes)
            if row["confidence"] >= lowest_confidence
        ]  # fmt: skip
        detection = f"The detector found {len(image.boxes)} boxes, {sum(row['is_used'] for row in image.boxes)} of them"
        document.add_paragraph(f"{detection} of a used class; the {len(rows)} most confident:")
        document.add_table(
            ["box", "class", "confidence", "x1 y1 x2 y2", "class is used"], rows, "the most confident boxes"
        )
    elif any(step.stage == "boxes" and step.state == ACCEPTED for step in image.steps):
        document.add_paragraph("The detector found no box.")


def _describe_distances(organs: dict[str, np.ndarray], zones: dict[str, np.ndarray]) -> str:
    """Return the distances of the lungs' outer edges and the heart's lower edge on the image from those on the edited
    image, as a text. ``organs`` are masks on the image, ``zones`` masks on the edited image."""
    parts = []
    for name, axis, end in ((LUNGS[0], 0, 0), (LUNGS[1], 0, -1), (HEART, 1, -1)):
        ends = [np.flatnonzero(masks[name].any(axis=axis)) for masks in (organs, zones)]
        text = "not visible in both images"
        if all(len(positions) for positions in ends):
            distance = abs(int(ends[0][end]) - int(ends[1][end])) / organs[name].shape[1]
            text = f"{distance:.3f} of the frame's width"
        parts.append(f"{'lower' if name == HEART else 'outer'} edge of the {name} {text}")
    return ", ".join(parts)


def _add_comparison(document: Document, study: Study) -> None:
    document.add_heading("Threshold sets side by side")
    rows = []
    for image in study.images:
        of_sets = [of_images[image.image_id] for of_images in study.outcomes.values()]
        by_set = [{row["finding"]: row for row in image_outcome.findings} for image_outcome in of_sets]
        for number in sorted(set().union(*by_set)):
            finding_rows = [rows_of.get(number) for rows_of in by_set]
            entity = next(row["entity"] for row in finding_rows if row)
            results = (describe_finding(row) if row else "-" for row in finding_rows)
            rows.append([image.image_id, f"{number} {entity}", *results])
        rows.append([image.image_id, "pairs", *(describe_result(image_outcome) for image_outcome in of_sets)])
    document.add_table(["image", "finding", *study.outcomes], rows, "per-finding result under each set")


def describe_finding(row: dict) -> str:
    """Return a finding's result: "no mask: <reason>", or "mask of <area> px" with its zones or why it is not used."""
    if row["mask_id"] is None:
        return f"no mask: {row['reason']}"
    mask_text = f"mask of {row['area']:,} px"
    if row["reason"]:
        return f"{mask_text}, not used: {row['reason']}"
    return f"{mask_text}, grounded in {', '.join(row['grounded'])}" if row["grounded"] else mask_text


def _add_outcome(document: Document, name: str, image: Image, outcome: Outcome, study: Study) -> None:
    """Add all decisions on an image under one threshold set, or nothing if the masks stage did not accept the image."""
    if outcome.steps[0].state != ACCEPTED:
        return
    where = f", image {image.image_id}" if len(study.images) > 1 else ""
    document.add_heading(f"Under the threshold set {name}{where}")
    settings = json.loads(outcome.settings)
    taus = settings["thresholds"]
    columns = ("ano", *MEASURED_CONDITIONS)
    rows = [[part, *(format_threshold(taus[part][tau]) for tau in columns)] for part in (GENERAL, EDEMA)]
    document.add_table(["thresholds of", *columns], rows, f"the thresholds {name}")
    if outcome.findings:
        document.add_heading("Findings", 3)
        document.add_table(RESULT_HEAD, [_result_row(row) for row in outcome.findings], "per-finding result")
    else:
        document.add_paragraph("The report affirms nothing, so there is no finding to look for.")
    alt = f"Boxes and masks of {image.image_id} under the thresholds {name}"
    document.add_figure(_draw_result(image, outcome), alt)
    for row in outcome.findings:
        if row["box_verdicts"]:
            _add_boxes(document, row, image, settings)
    _add_instructions(document, outcome)


def _result_row(row: dict) -> list[str]:
    target = row["target"] or "-"
    target += f", called {row['word']}" if row["target"] and row["word"] != row["target"] else ""
    ungrounded = [label for label in row["reported"] if label not in row["grounded"]]
    outside = f"{row['share_outside']:.0%} of the mask" if row["share_outside"] is not None else "-"
    became = describe_finding(row) if row["mask_id"] else describe_reason(row["reason"], FINDING_REASONS)
    if row["mask_id"] and row["reason"]:
        became = f"{describe_finding(row)} ({FINDING_REASONS[row['reason']]})"
    judged = f"{row['productive_boxes']} of {len(row['box_verdicts'])}" if row["box_verdicts"] else "-"
    return [
        str(row["finding"]), row["entity"], target, _join_labels(row["reported"]), became, _join_labels(ungrounded),
        judged, outside,
    ]  # fmt: skip


def _draw_result(image: Image, outcome: Outcome) -> drawing.Figure:
    used_boxes = [(number, row) for number, row in enumerate(image.boxes) if row["is_used"]]
    judged = [row["box_verdicts"] for row in outcome.findings if row["box_verdicts"]]
    best = [min(verdicts, key=int.bit_count) for verdicts in zip(*judged, strict=True)]
    order = sorted(range(len(best)), key=lambda place: (best[place].bit_count(), place))[:MAX_BOXES]
    boxes = []
    for place in order:
        number, box = used_boxes[place]
        boxes.append((*(box[corner] for corner in CORNERS), number, best[place] == 0))
    masked = [row for row in outcome.findings if row["mask_id"]]
    masks = {f"{row['finding']} {row['target']}": outcome.masks[row["mask_id"]] for row in masked}
    return drawing.draw_outcome(image.arrays["image"], boxes, masks)


def _add_boxes(document: Document, row: dict, image: Image, settings: dict) -> None:
    rows, names = box_rows(row, image, settings), (BOX_MEASURES[tau] for tau in MEASURED_CONDITIONS)
    document.add_heading(f"Boxes for finding {row['finding']}, {row['entity']} in {_join_labels(row['reported'])}", 3)
    document.add_table(["box", "class", *names, "verdict"], rows[:MAX_BOXES], "boxes of one finding")
    if omitted_verdicts := sorted(row["box_verdicts"], key=int.bit_count)[MAX_BOXES:]:
        counts = Counter(name for verdict in omitted_verdicts for name in list_failed_conditions(verdict))
        words = ", ".join(f"{BOX_MEASURES[name]} {count}" for name, count in sorted(counts.items()))
        what_fails = f"the numbers that fail each condition: {words or 'none fails any'}."
        document.add_paragraph(f"{len(omitted_verdicts)} more boxes; {what_fails}")


def box_rows(row: dict, image: Image, settings: dict) -> list[list[str]]:
    """Return a row per box judged for a finding: number, class, each measure with its threshold, and verdict.
    Boxes that fail the fewest conditions come first. ``settings`` are the ones stored with the masks."""
    taus, verdicts = thresholds_for(row["target"], settings), row["box_verdicts"]
    used_boxes = [(number, box) for number, box in enumerate(image.boxes) if box["is_used"]]
    arrays = (image.arrays[stage] for stage in ("anatomy", "organs", "anomaly"))
    boxes = [box for _, box in used_boxes]
    judged = judge_boxes(boxes, row["reported"], *arrays, target=row["target"], settings=settings)
    rows = []
    for at in sorted(range(len(used_boxes)), key=lambda at: (verdicts[at].bit_count(), at)):
        number, box = used_boxes[at]
        numbers, below = judged[at]
        cells = [
            f"{format_measure(numbers[tau], taus[tau])} {'<' if tau in below else '>='} {format_threshold(taus[tau])}"
            for tau in MEASURED_CONDITIONS
        ]
        failed = ", ".join(BOX_MEASURES[name] for name in list_failed_conditions(verdicts[at]))
        changed = "" if judged[at].agrees(verdicts[at]) else f" ({MASKS_OUTDATED})"
        rows.append(
            [str(number), box["class_name"], *cells, (f"dropped: {failed}" if failed else "productive") + changed]
        )
    return rows


def _add_instructions(document: Document, outcome: Outcome) -> None:
    evidence = outcome.evidence
    if evidence:
        document.add_heading("Locations", 3)
        rows = [[name, _join_labels(evidence[name], "none")] for name in ("reported", "blocked", "occupied", "empty")]
        rows.append(["cardiothoracic ratio", "none" if evidence["ctr"] is None else f"{evidence['ctr']:.3f}"])
        document.add_table(["what", "which"], rows, "locations that negatives may name, and why not the others")
    if outcome.units:
        document.add_heading("Positive instructions", 3)
        document.add_table(UNIT_HEAD, [_unit_row(row) for row in outcome.units], "positive instructions")
    if outcome.pairs:
        document.add_heading("Pairs", 3)
        areas = {mask_id: f"{int(mask.sum()):,} px" for mask_id, mask in outcome.masks.items()}
        rows = [
            [
                *(pair[name] for name in ("pair_id", "type", "instruction", "answer")),
                areas.get(pair["mask_id"], "empty"),
                _describe_basis(pair),
            ]
            for pair in outcome.pairs
        ]
        document.add_table(["pair", "type", "instruction", "answer", "mask", "rests on"], rows, "pairs that were made")
    if outcome.dropped:
        document.add_heading("Pairs that were not made", 3)
        rows = [
            [row["polarity"], row["type"] or "-", row["target"], describe_reason(row["reason"], PAIR_REASONS)]
            for row in outcome.dropped
        ]
        document.add_table(["polarity", "type", "target", "why not"], rows, "pairs that were not made")


def _describe_basis(pair: dict) -> str:
    """Return why a pair was made: a sentence states or denies the lesion, or report and image show no sign of it."""
    if pair["seg"]:
        return f"sentence {pair['sentence_index']}"
    if pair["quote"]:
        return f"{pair['quote_section']}: {pair['quote']}"
    basis = BASES.get(pair["basis"], "not recorded")
    if pair["box_confidence"] is None:
        return basis
    fraction = pair["anomalous_fraction"]
    anomalous = "no anomaly map" if fraction is None else f"{100 * fraction:.1f} % anomalous"
    return f"{basis}; best box {pair['box_confidence']:.2f}, {anomalous}"


def _unit_row(row: dict) -> list[str]:
    twin = "yes" if row["inference"] else "no"
    if row["inference_dropped"]:
        twin = f"no: {describe_reason(row['inference_dropped'], PAIR_REASONS)}"
    return [
        row["kind"], row["target"], row["certainty"] or "-", _join_labels(row["location"]),
        ", ".join(map(str, row["finding"])), f"{row['area']:,} px",
        "yes" if row["dropped"] is None else f"no: {describe_reason(row['dropped'], PAIR_REASONS)}", twin,
    ]  # fmt: skip


def describe_reason(code: str, words: dict[str, str]) -> str:
    """Return "code: meaning" with the meaning in ``words``, or the code alone if ``words`` lacks it."""
    return f"{code}: {words[code]}" if code in words else code

"""Write the document on a study: the decision of each stage, and its reason."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from cxr.base.exclusions import REASONS
from cxr.base.vocabulary import HEART, LUNGS, ZONE_LABELS
from cxr.geometry.boxes import CORNERS
from cxr.ils.masks.box_conditions import (
    MASKS_OUTDATED,
    MEASURED_CONDITIONS,
    format_measure,
    format_threshold,
    judge_boxes,
    list_failed_conditions,
    thresholds_for,
)
from cxr.ils.masks.thresholds import EDEMA, GENERAL
from cxr.reporting.explain import drawing
from cxr.reporting.explain.blocks import Block, Heading, Mark, Marked, Paragraph, Picture, Table, apart
from cxr.reporting.explain.study import ACCEPTED, NO_RESULTS, STOPPED, Image, Outcome, Step, Study
from cxr.reporting.explain.words import BOX_FAULTS, FINDING_REASONS, PAIR_REASONS, meaning

UNEDITED = (
    "The report states no finding that asks for a mask of the anomaly map, so the image was not edited "
    "(anomaly.images with_findings): its map is empty, and its zones come from the image itself."
)
SHOWN_BOXES = 12
"""Maximum number of box rows per finding: productive boxes and those that came nearest; the others are counted."""


def tell(study: Study, dpi: int) -> list[Block]:
    """Return the whole document; ``dpi`` is the resolution of its pictures."""
    first = study.images[0].row
    blocks: list[Block] = [Heading(f"Study {study.study_id}", 1)]
    blocks.append(Paragraph(f"Subject {first['subject_id']}, split {first['split'] or 'none'}."))
    blocks += [Paragraph(sentence) for sentence in fates(study)]
    blocks += [Heading("Images"), images(study)]
    blocks += report(study)
    for image in study.images:
        blocks += maps(image, dpi)
    if len(study.outcomes) > 1:
        blocks += side_by_side(study)
    for name, of_images in study.outcomes.items():
        for image in study.images:
            blocks += outcome(name, image, of_images[image.image_id], study, dpi)
    return [*blocks, *made_by(study)]


def fates(study: Study) -> list[str]:
    """Return one sentence per image, and one more per threshold set that it reached."""
    sentences = []
    for image in study.images:
        if stop := image.stopped:
            sentences.append(f"{image.image_id} {stopped(stop)}")
        elif waits := next((step for step in image.steps if step.state == NO_RESULTS), None):
            sentences.append(f"{image.image_id} is accepted so far; {waits.stage} has no results of it yet.")
        elif not study.outcomes:
            sentences.append(f"{image.image_id} passed every stage before masks; no threshold set has masks yet.")
        else:
            sentences += [
                f"{image.image_id} under {name}: {made(outcome_by_image[image.image_id])}"
                for name, outcome_by_image in study.outcomes.items()
            ]
    return sentences


def stopped(step: Step) -> str:
    """Return "stopped in frames: undecodable (…)."."""
    detail = f"; {step.detail}" if step.detail else ""
    return f"stopped in {step.stage}: {step.reason} ({REASONS[step.reason]}{detail})."


def made(outcome: Outcome) -> str:
    """Return the result of an image under one threshold set, as the end of a sentence."""
    for step in outcome.steps:
        if step.state == STOPPED:
            return stopped(step)
        if step.state != ACCEPTED:
            return f"{step.stage} has no results of it yet."
    positive = sum(pair["seg"] for pair in outcome.pairs)
    number = len(outcome.pairs)
    return f"{number} pair{'s' * (number != 1)}, {positive} positive and {number - positive} negative."


def images(study: Study) -> Table:
    """Return one row per image: how far it came."""
    stages = [step.stage for step in study.images[0].steps]
    rows = [
        [image.image_id, image.row["view"] or "unknown", image.row["shard"] or "-"]
        + [step.reason or step.state for step in image.steps]
        for image in study.images
    ]
    return Table(["image", "view", "shard", *stages], rows, "how far each image came")


def report(study: Study) -> Iterator[Block]:
    """Yield the report with its findings marked, and a row for each finding."""
    yield Heading("Report")
    line = study.line
    if line is None:
        steps = [step for image in study.images for step in image.steps if step.stage == "reports"]
        why = next((step for step in steps if step.state == STOPPED), None)
        yield Paragraph(f"The study {stopped(why)}" if why else "No report of this study was read.")
        return
    yield Paragraph(f"Section {line['section_name']}, read by the engine {line['engine']}.")
    marks = [_mark(number, finding) for number, finding in enumerate(line["tuples"]) if finding.get("span")]
    yield Marked(line["section_text"], apart(marks))
    if line["tuples"]:
        yield Table(
            FINDING_HEAD, [_row(n, finding) for n, finding in enumerate(line["tuples"])], "findings of the report"
        )
    if line.get("other_tuples"):
        yield Paragraph(f"The section {line['other_section']} was not used; its findings only block negatives.")
        rows = [_row(number, finding) for number, finding in enumerate(line["other_tuples"])]
        yield Table(FINDING_HEAD, rows, "findings of the other section")


FINDING_HEAD = ["finding", "sentence", "what", "presence", "certainty", "location", "labels", "lesion type"]


def _mark(number: int, finding: dict) -> Mark:
    kind = (
        finding["presence"]
        if finding["presence"] == "negative" or finding["certainty"] == "definitive"
        else "tentative"
    )
    kind = "outside" if finding["lesion_type"] is None else kind
    return Mark(*finding["span"], kind, f"{number} {finding['presence']}")


def _row(number: int, finding: dict) -> list[str]:
    predicted = finding.get("predicted_lesion_type")
    return [
        str(number), str(finding["sentence_index"]), finding["entity"], finding["presence"],
        f"{finding['certainty']} ({finding['hedge']})", ", ".join(finding["location"] or []) or "-",
        _listed(finding["labels"], finding["category"]),
        (finding["lesion_type"] or "none of the seven") + (f", explained as {predicted}" if predicted else ""),
    ]  # fmt: skip


def _listed(labels: Sequence[str] | None, otherwise: str | None = None) -> str:
    return ", ".join(labels or []) or otherwise or "-"


def maps(image: Image, dpi: int) -> Iterator[Block]:
    """Yield the organs, zones and boxes of an image that exist."""
    if "image" not in image.arrays:
        return
    yield Heading(f"Image {image.image_id}")
    yield from (Paragraph(f"Its file: {correction}.") for correction in image.corrections)
    for title, figure in drawing.maps(image.arrays, unedited=image.unedited).items():
        yield Picture(drawing.png(figure, dpi), f"Image {image.image_id}: {title}", small=True)
    if image.unedited:
        yield Paragraph(UNEDITED)
    checked = [step for step in image.steps if step.stage in ("organs", "anomaly", "anatomy", "boxes")]
    for step in checked:
        if step.state == STOPPED:
            yield Paragraph(f"The image {stopped(step)}")
    organs, zones = image.arrays.get("organs"), image.arrays.get("anatomy")
    if organs:
        yield Paragraph("Organs: " + ", ".join(f"{name} {int(mask.sum()):,} px" for name, mask in organs.items()) + ".")
    if organs and zones:
        where = "image" if image.unedited else "edited image"
        yield Paragraph(f"Distance of the organs on the {where} from those on the image: {_apart(organs, zones)}.")
        empty = [name for name in ZONE_LABELS if not zones[name].any()]
        yield Paragraph(f"Zones without a pixel: {_listed(empty, 'none')}.")
    if image.boxes:
        rows = [
            [
                str(number),
                row["class_name"],
                format_measure(row["confidence"]),
                _corners(row),
                "yes" if row["kept"] else "no",
            ]
            for number, row in enumerate(image.boxes)
            if row["confidence"] >= _least(image.boxes)
        ]
        yield Paragraph(_box_count(image.boxes, len(rows)))
        yield Table(["box", "class", "confidence", "x1 y1 x2 y2", "class is used"], rows, "the most confident boxes")
    elif any(step.stage == "boxes" and step.state == ACCEPTED for step in image.steps):
        yield Paragraph("The detector found no box.")


def _least(boxes: Sequence[dict]) -> float:
    return sorted((row["confidence"] for row in boxes), reverse=True)[:SHOWN_BOXES][-1]


def _box_count(boxes: Sequence[dict], num_shown: int) -> str:
    used = sum(row["kept"] for row in boxes)
    return f"The detector found {len(boxes)} boxes, {used} of them of a used class; the {num_shown} most confident:"


def _corners(row: dict) -> str:
    return " ".join(f"{row[name]:.0f}" for name in CORNERS)


def _apart(organs: dict[str, np.ndarray], zones: dict[str, np.ndarray]) -> str:
    """Return a text on the distances between both outer edges of each lung and both lower edges of the heart."""
    parts = []
    for name, axis, end in ((LUNGS[0], 0, 0), (LUNGS[1], 0, -1), (HEART, 1, -1)):
        ends = [np.flatnonzero(masks[name].any(axis=axis)) for masks in (organs, zones)]
        edge_name = f"{'lower' if name == HEART else 'outer'} edge of the {name}"
        if all(len(positions) for positions in ends):
            distance = abs(int(ends[0][end]) - int(ends[1][end])) / organs[name].shape[1]
            parts.append(f"{edge_name} {distance:.3f} of the frame's width")
        else:
            parts.append(f"{edge_name} not in both")
    return ", ".join(parts)


def side_by_side(study: Study) -> Iterator[Block]:
    """Yield a row for each finding and a column for each threshold set: its result."""
    yield Heading("Threshold sets side by side")
    rows = []
    for image in study.images:
        of_sets = [of_images[image.image_id] for of_images in study.outcomes.values()]
        by_set = [{row["finding"]: row for row in image_outcome.findings} for image_outcome in of_sets]
        for number in sorted(set().union(*by_set)):
            finding_rows = [rows_of.get(number) for rows_of in by_set]
            entity = next(row["entity"] for row in finding_rows if row)
            rows.append([image.image_id, f"{number} {entity}", *(ending(row) if row else "-" for row in finding_rows)])
        rows.append([image.image_id, "pairs", *(made(image_outcome) for image_outcome in of_sets)])
    yield Table(["image", "finding", *study.outcomes], rows, "per-finding result under each set")


def ending(row: dict) -> str:
    """Return the result of a finding, in a few words."""
    if row["mask_id"] is None:
        return f"no mask: {row['reason']}"
    mask_text = f"mask of {row['area']:,} px"
    if row["reason"]:
        return f"{mask_text}, not used: {row['reason']}"
    return f"{mask_text}, grounded in {', '.join(row['grounded'])}" if row["grounded"] else mask_text


def outcome(name: str, image: Image, outcome: Outcome, study: Study, dpi: int) -> Iterator[Block]:
    """Yield all decisions of one threshold set about an image; nothing for an image that did not reach it."""
    if outcome.steps[0].state != ACCEPTED:
        return
    where = f", image {image.image_id}" if len(study.images) > 1 else ""
    yield Heading(f"Under the threshold set {name}{where}")
    settings = json.loads(outcome.settings)
    taus = settings["thresholds"]
    yield Table(
        ["thresholds of", "ano", *MEASURED_CONDITIONS],
        [
            [part, *(format_threshold(taus[part][tau]) for tau in ("ano", *MEASURED_CONDITIONS))]
            for part in (GENERAL, EDEMA)
        ],
        f"the thresholds {name}",
    )
    if outcome.findings:
        yield Heading("Findings", 3)
        yield Table(OUTCOME_HEAD, [_outcome_row(row) for row in outcome.findings], "per-finding result")
    else:
        yield Paragraph("The report affirms nothing, so there is no finding to look for.")
    yield Picture(
        drawing.png(_drawn(image, outcome), dpi), f"Boxes and masks of {image.image_id} under the thresholds {name}"
    )
    for row in outcome.findings:
        yield from boxes_of(row, image, settings)
    yield from _instructions(outcome)


OUTCOME_HEAD = ["finding", "what", "target", "reported location", "result", "not confirmed", "boxes", "outside"]


def _outcome_row(row: dict) -> list[str]:
    target = row["target"] or "-"
    target += f", called {row['word']}" if row["target"] and row["word"] != row["target"] else ""
    ungrounded = [label for label in row["reported"] if label not in row["grounded"]]
    outside = f"{row['share_outside']:.0%} of the mask" if row["share_outside"] is not None else "-"
    became = ending(row) if row["mask_id"] else meaning(row["reason"], FINDING_REASONS)
    if row["mask_id"] and row["reason"]:
        became = f"{ending(row)} ({FINDING_REASONS[row['reason']]})"
    judged = f"{row['productive_boxes']} of {len(row['box_verdicts'])}" if row["box_verdicts"] else "-"
    return [
        str(row["finding"]), row["entity"], target, _listed(row["reported"]), became, _listed(ungrounded), judged,
        outside,
    ]  # fmt: skip


def _drawn(image: Image, outcome: Outcome):
    used_boxes = [(number, row) for number, row in enumerate(image.boxes) if row["kept"]]
    judged = [row["box_verdicts"] for row in outcome.findings if row["box_verdicts"]]
    best = (
        [min((verdicts[place] for verdicts in judged), key=int.bit_count) for place in range(len(used_boxes))]
        if judged
        else []
    )
    order = sorted(range(len(best)), key=lambda place: (best[place].bit_count(), place))[:SHOWN_BOXES]
    boxes = [
        (*(used_boxes[place][1][corner] for corner in CORNERS), used_boxes[place][0], best[place] == 0)
        for place in order
    ]
    masks = {
        f"{row['finding']} {row['target']}": outcome.masks[row["mask_id"]] for row in outcome.findings if row["mask_id"]
    }
    return drawing.outcome(image.arrays["image"], boxes, masks)


def boxes_of(row: dict, image: Image, settings: dict) -> Iterator[Block]:
    """Yield why each box was kept or dropped for one finding, with the numbers beside the thresholds.

    ``settings``: the settings stored with the masks.
    """
    verdicts = row["box_verdicts"]
    if not verdicts:
        return
    taus = thresholds_for(row["target"], settings)
    used_boxes = [(number, box) for number, box in enumerate(image.boxes) if box["kept"]]
    arrays = (image.arrays[stage] for stage in ("anatomy", "organs", "anomaly"))
    judged = judge_boxes(
        [box for _, box in used_boxes], row["reported"], *arrays, target=row["target"], settings=settings
    )
    order = sorted(range(len(used_boxes)), key=lambda at: (verdicts[at].bit_count(), at))
    yield Heading(f"Boxes for finding {row['finding']}, {row['entity']} in {_listed(row['reported'])}", 3)
    lines = []
    for at in order[:SHOWN_BOXES]:
        number, box = used_boxes[at]
        numbers, below = judged[at]
        cells = [
            f"{format_measure(numbers[tau], taus[tau])} {'<' if tau in below else '>='} {format_threshold(taus[tau])}"
            for tau in MEASURED_CONDITIONS
        ]
        changed = "" if judged[at].agrees(verdicts[at]) else f" ({MASKS_OUTDATED})"
        lines.append([str(number), box["class_name"], *cells, _verdict(list_failed_conditions(verdicts[at])) + changed])
    yield Table(
        ["box", "class", *(BOX_FAULTS[tau] for tau in MEASURED_CONDITIONS), "verdict"], lines, "boxes of one finding"
    )
    if omitted_boxes := order[SHOWN_BOXES:]:
        counts = Counter(name for at in omitted_boxes for name in list_failed_conditions(verdicts[at]))
        words = ", ".join(f"{BOX_FAULTS[name]} {count}" for name, count in sorted(counts.items()))
        yield Paragraph(
            f"{len(omitted_boxes)} more boxes; the numbers that fail each condition: {words or 'none fails any'}."
        )


def _verdict(bad: Sequence[str]) -> str:
    return "dropped: " + ", ".join(BOX_FAULTS[name] for name in bad) if bad else "productive"


def _instructions(outcome: Outcome) -> Iterator[Block]:
    evidence = outcome.evidence
    if evidence:
        yield Heading("Locations", 3)
        rows = [[name, _listed(evidence[name], "none")] for name in ("reported", "blocked", "occupied", "empty")]
        rows.append(["cardiothoracic ratio", "none" if evidence["ctr"] is None else f"{evidence['ctr']:.3f}"])
        yield Table(["what", "which"], rows, "locations that negatives may name, and why not the others")
    if outcome.units:
        yield Heading("Positive instructions", 3)
        yield Table(UNIT_HEAD, [_unit(row) for row in outcome.units], "positive instructions")
    if outcome.pairs:
        yield Heading("Pairs", 3)
        areas = {mask_id: f"{int(mask.sum()):,} px" for mask_id, mask in outcome.masks.items()}
        rows = [
            [pair["pair_id"], pair["type"], pair["instruction"], pair["answer"], areas.get(pair["mask_id"], "empty")]
            for pair in outcome.pairs
        ]
        yield Table(["pair", "type", "instruction", "answer", "mask"], rows, "pairs that were made")
    if outcome.dropped:
        yield Heading("Pairs that were not made", 3)
        rows = [
            [row["polarity"], row["type"] or "-", row["target"], meaning(row["reason"], PAIR_REASONS)]
            for row in outcome.dropped
        ]
        yield Table(["polarity", "type", "target", "why not"], rows, "pairs that were not made")


UNIT_HEAD = ["kind", "target", "certainty", "location", "findings", "mask", "becomes a pair", "lesion inference"]


def _unit(row: dict) -> list[str]:
    twin = "yes" if row["inference"] else "no"
    if row["inference_dropped"]:
        twin = f"no: {meaning(row['inference_dropped'], PAIR_REASONS)}"
    return [
        row["kind"], row["target"], row["certainty"] or "-", _listed(row["location"]),
        ", ".join(map(str, row["finding"])), f"{row['area']:,} px",
        "yes" if row["dropped"] is None else f"no: {meaning(row['dropped'], PAIR_REASONS)}", twin,
    ]  # fmt: skip


def made_by(study: Study) -> Iterator[Block]:
    """Yield the code and the settings behind the arrays."""
    if study.made_by:
        yield Heading("Made by")
        rows = [[stage, code, settings] for stage, (code, settings) in study.made_by.items()]
        yield Table(["stage", "code digest", "settings"], rows, "code and settings behind the arrays")

"""Lines of a small RadVLM mix, and answers to them, as the stages write them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cxr.base.tables import write_lines
from cxr.radvlm.evaluation.conversations import run_judge
from cxr.radvlm.evaluation.score_run import run_scores
from cxr.radvlm.settings import ScoreOptions

OPTIONS = ScoreOptions(replicates=50)
JUDGED = {"judge": "facts", "model_options": {}}
HEART, LUNG = [0.3, 0.4, 0.7, 0.9], [0.1, 0.1, 0.45, 0.9]
FINDINGS = ("Pleural Effusion", "Cardiomegaly", "Pneumothorax", "Consolidation")


def line(name: str, task: str, number: int, turns: Sequence[tuple[str, str]], **more: object) -> dict:
    """Return a line of the patient ``number``."""
    return {
        "sample_id": name, "task": task, "source": "own", "subject_id": f"p{number}", "study_id": f"s{number}",
        "image_id": f"i{number}", "split": "test", "pass": 0, "asked": more.get("asked"),
        "turns": [{"question": question, "answer": answer, "wording": ""} for question, answer in turns],
        "boxes": more.get("boxes", {}), "labels": more.get("labels"), "mask_ids": [], "facts": [], "engine": "",
    }  # fmt: skip


def lines_of(first: int, count: int) -> list[dict]:
    """Return the lines of ``count`` patients: every task that is scored."""
    found = []
    for number in range(first, first + count):
        name = FINDINGS[number % len(FINDINGS)]
        other, low = FINDINGS[(number + 1) % len(FINDINGS)], name.lower()
        box = [[round(0.02 * (number % 9) + edge, 2) for edge in LUNG]]
        at = f"<box:{name}>"
        told = [
            ("What is there?", f"There is a {low}."),
            (f"Is there a {other.lower()}?", f"No, there is no {other.lower()}."),
            ("Anything else?", f"Nothing but the {low}."), ("How sure are you?", f"The {low} is definite."),
            ("Which view is it?", "It is a frontal view."),
        ]  # fmt: skip
        found += [
            line(f"r{number}", "report_generation", number, [("Report?", f"There is a {low}. No {other.lower()}.")]),
            line(f"c{number}", "classification", number, [("What is abnormal?", f"{name}.")], labels=[name]),
            line(f"a{number}", "anatomical_grounding", number,
                 [("Where is the heart?", "At <box:cardiac silhouette>.")],
                 asked="cardiac silhouette", boxes={"cardiac silhouette": [HEART]}),
            line(f"b{number}", "abnormality_grounding", number, [(f"Where is the {low}?", f"At {at}.")], asked=name,
                 boxes={name: box}),
            line(f"d{number}", "abnormality_detection", number, [("What and where?", f"{low} {at}")],
                 boxes={name: box}),
            line(f"p{number}", "phrase_grounding", number, [("Where is 'a shadow'?", "At <box:phrase>.")],
                 asked=f"a shadow {number}", boxes={"phrase": box}),
            line(f"n{number}", "absent_grounding", number, [(f"Where is the {other.lower()}?", "It is not seen.")],
                 asked=other),
            line(f"t{number}", "conversation", number, told, labels=[name]),
            line(f"g{number}", "conversation_grounded", number, [*told, ("Where is it?", f"It is at {at}.")],
                 boxes={name: box}, labels=[name]),
        ]  # fmt: skip
    return found


def exchanged_of(lines: Sequence[Mapping]) -> list[dict]:
    """Return the lines with the picture of the next patient."""
    images = sorted({one["image_id"] for one in lines}, key=lambda name: int(name[1:]))
    following = dict(zip(images, [*images[1:], images[0]], strict=True))
    return [dict(one) | {"image_id": following[one["image_id"]], "right_image_id": one["image_id"]} for one in lines]


def written(text: str, boxes: Mapping) -> str:
    """Return an answer with its slots written in the convention unit."""
    for name, held in boxes.items():
        told = " and ".join(f"[{', '.join(f'{value:.2f}' for value in box)}]" for box in held)
        text = text.replace(f"<box:{name}>", told)
    return text


def answers_to(lines: Sequence[Mapping], right: Sequence[Mapping] | None = None) -> list[dict]:
    """Return the right answers to lines; ``right``: the lines whose right answers are given instead, in order."""
    return [
        {
            "sample_id": one["sample_id"], "turn": turn, "text": written(told["answer"], held["boxes"]), "tokens": 1,
            "stop": "end", "failure": "", "convention": "unit", "seen": [512, 512],
        }
        for one, held in zip(lines, right or lines, strict=True)
        for turn, told in enumerate(held["turns"])
    ]  # fmt: skip


def perceived(lines: Sequence[Mapping]) -> list[dict]:
    """Return the answers of one who sees the picture that is shown: to the exchanged lines, those about the other."""
    of = {(one["task"], one["image_id"]): one for one in lines}
    others = exchanged_of(lines)
    return answers_to(others, [of[one["task"], one["image_id"]] for one in others])


def scored(folder: Path, test: Sequence[Mapping], answers: Sequence[Mapping], others: Sequence[Mapping] | None = None,
           **options: object) -> Path:  # fmt: skip
    """Judge and score answers; ``others``: to the exchanged lines, those of ``exchanged`` or all. Returns the folder of
    the tables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = ("texts", "annotations", "draw", "exchanged_draw", "tasks")
    more = {name: options.pop(name) for name in given if name in options}
    exchanged = options.pop("exchanged", None)
    write_lines(folder / "test.jsonl", list(test))
    write_lines(folder / "train.jsonl", lines_of(100, 12))
    write_lines(folder / "answers.jsonl", list(answers))
    same = {"lines": str(folder / "test.jsonl"), "train": str(folder / "train.jsonl"),
            "answers": str(folder / "answers.jsonl")}  # fmt: skip
    if others is not None:
        write_lines(folder / "exchanged.jsonl", exchanged_of(test) if exchanged is None else exchanged)
        write_lines(folder / "others.jsonl", list(others))
        same |= {"exchanged_lines": [str(folder / "exchanged.jsonl")],
                 "exchanged_answers": [str(folder / "others.jsonl")]}  # fmt: skip
    run_judge(**same, judged=str(folder / "judged.jsonl"), **JUDGED, execution={})
    run_scores(
        **same, judged=str(folder / "judged.jsonl"), samples=str(folder / "samples.parquet"),
        scored=str(folder / "scores.tsv"), counts=str(folder / "counts.tsv"),
        options=replace(OPTIONS, **options), seed=1, **more,
    )  # fmt: skip
    return folder

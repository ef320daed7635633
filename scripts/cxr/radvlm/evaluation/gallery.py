"""Gallery of the report page: images with question, expected answer, model answer and the boxes of both answers."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from cxr.base.atomic import atomic_folder
from cxr.base.hdf5 import Shard
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_lines
from cxr.geometry.affine import boxes_to_frame
from cxr.plotting.encoding import encode_image
from cxr.radvlm.evaluation.answers import SampleAnswer, join_answers, turn_boxes
from cxr.radvlm.samples import CONVERSATION_TASKS, TEXT_TASKS, write_slots

GREEN, RED = (0, 158, 115), (213, 58, 0)  # RGB colours of the reference boxes and the answer's boxes
WIDTH = 480  # longer side of an image, in pixels
MAX_TURNS = 10  # maximum number of turns shown of a conversation


def select_samples(lines: Sequence[Mapping], seed: int) -> Iterator[Mapping]:
    """Yield the first sample (two for conversations) of each task and source. A hash of the ids orders the samples."""
    line_groups: dict[tuple[str, str], list[Mapping]] = {}
    for line in sorted(lines, key=lambda line: stable_hash(seed, "gallery", line["sample_id"])):
        line_groups.setdefault((line["task"], line["source"]), []).append(line)
    for (task, _), group in sorted(line_groups.items()):
        yield from group[: 2 if task in CONVERSATION_TASKS else 1]


def build_case(line: Mapping, sample_answer: SampleAnswer) -> tuple[dict, np.ndarray, np.ndarray]:
    """Return (record for the page, reference boxes, answer boxes) of a sample. Boxes are fractions, float64 (N, 4)."""
    turns, true_boxes, answer_boxes = [], [np.zeros((0, 4))], [np.zeros((0, 4))]
    for turn, qa_pair in enumerate(line["turns"][:MAX_TURNS]):
        answer = sample_answer.failure or sample_answer.texts[turn]
        expected = write_slots(qa_pair["answer"], line["boxes"])
        turns.append({"question": qa_pair["question"], "expected": expected, "answer": answer})
        true_boxes.append(turn_boxes(line, turn))
        answer_boxes += [] if sample_answer.failure else [sample_answer.boxes(turn).boxes]
    case = {name: line[name] for name in ("task", "source", "image_id", "split")} | {"turns": turns}
    return case, np.concatenate(true_boxes), np.concatenate(answer_boxes)


def draw_boxes(
    frame: np.ndarray, affine: np.ndarray, shape: tuple[int, int], true_boxes: np.ndarray, answer_boxes: np.ndarray
) -> np.ndarray:
    """Return the image without padding, uint8 (H, W, 3), with reference boxes in green and answer boxes in red. Boxes
    are fractions of the original image of ``shape`` (rows, columns). ``affine``: from the frame to this image."""
    rows, columns = shape
    corners = boxes_to_frame(np.array([0.0, 0.0, columns, rows]), affine).reshape(2, 2)
    low, high = np.maximum(np.floor(corners[0]), 0).astype(int), np.minimum(np.ceil(corners[1]), frame.shape[::-1][:2])
    part = np.repeat(frame[low[1] : int(high[1]), low[0] : int(high[0]), None], 3, axis=2)
    height, width = part.shape[:2]
    scale = WIDTH / max(height, width)
    size = (round(width * scale), round(height * scale))
    picture = np.ascontiguousarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA))
    for boxes, colour in ((true_boxes, GREEN), (answer_boxes, RED)):
        for x1, y1, x2, y2 in np.rint(boxes * np.array([*size, *size])).astype(int).tolist():
            cv2.rectangle(picture, (x1, y1), (x2 - 1, y2 - 1), colour, 2, cv2.LINE_AA)
    return picture


def run(
    *, lines: str, answers: list[str], frames: list[str], folder: str, model: str, quality: int, seed: int,
    withheld: bool, folders: Mapping[str, str],
) -> None:  # fmt: skip
    """Write ``gallery.jsonl`` and images. ``withheld``: whether tasks with report text are omitted; ``folders``:
    {source: folder of frames}."""
    eligible_lines = [line for line in read_lines(lines) if not (withheld and line["task"] in TEXT_TASKS)]
    answer_by_sample = join_answers(eligible_lines, read_lines(answers[0]))[0] if answers else {}
    chosen_lines = list(select_samples(eligible_lines, seed)) if answers else []
    image_ids, pictures, rows = {line["image_id"] for line in chosen_lines}, {}, []
    for path in frames:
        with Shard(path) as shard:
            for image_id in sorted(image_ids & set(shard.ids)):
                shape = tuple(map(int, shard.get("original_shape", image_id)))
                frame, affine = (shard.get(name, image_id) for name in ("image", "to_original"))
                pictures[Path(path).parent, image_id] = frame, affine, shape
    with atomic_folder(folder) as into:
        for number, line in enumerate(chosen_lines):
            key = Path(folders.get(line["source"], "")), line["image_id"]
            if key not in pictures:
                continue
            case, true_boxes, answer_boxes = build_case(line, answer_by_sample[line["sample_id"]])
            frame, affine, shape = pictures[key]
            image = draw_boxes(frame, affine, shape, true_boxes, answer_boxes)
            jpeg_bytes = encode_image(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
            name = f"{line['task']}-{number:02d}.jpg"
            (into / name).write_bytes(jpeg_bytes)
            digest = hashlib.sha256(jpeg_bytes).hexdigest()[:16]
            rows.append({"file": name, "digest": digest, "run": model} | case)
        write_lines(into / "gallery.jsonl", rows)

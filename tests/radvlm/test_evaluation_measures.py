"""RadVLM's measures against libraries, brute force, and values by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.errors import UserError
from cxr.metrics.answer_boxes import score_answer, score_answers
from cxr.metrics.intervals import percentile_ends, resample_sums
from cxr.metrics.reports import bleu, bleu_counts, green_score, rouge_l, set_f1, tokenize
from cxr.radvlm.evaluation import classification, grounding, reports
from cxr.radvlm.evaluation.answers import AnswerBoxes, load_grammar
from cxr.radvlm.evaluation.classification import load_label_reader
from cxr.radvlm.evaluation.measures import Measure, mean_ratio, ratio, score_differences, score_measures
from cxr.radvlm.labels import load_label_names

WORDS = ["the", "heart", "is", "large", "no", "effusion", "left", "lung", "clear", "effusions", "enlarged", "."]
texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=14).map(" ".join)
NAMES = load_label_names().names


# Texts


@given(
    st.lists(st.tuples(texts.filter(lambda text: len(text.split()) >= 4), texts.filter(bool)), min_size=1, max_size=6)
)
@settings(max_examples=300, deadline=None)
def test_bleu_of_summed_counts_is_the_librarys(pairs):
    """nltk's; it calls an order without a match tiny instead of 0, and counts one n-gram of a shorter text."""
    from nltk.translate.bleu_score import corpus_bleu

    counts = sum(bleu_counts(*pair) for pair in pairs)
    if (counts[4:8] > 0).all() and (counts[:4] > 0).all():
        ours = float(bleu(counts))
        found = [tokenize(text) for text, _ in pairs]
        assert ours == pytest.approx(corpus_bleu([[tokenize(true)] for _, true in pairs], found), abs=1e-12)
    else:
        assert bleu(counts) == 0.0


def test_bleu_without_a_reference_is_no_number():
    assert np.isnan(bleu(bleu_counts("", "")))


def longest_common(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common subsequence, by trying all."""
    for size in range(min(len(one), len(other)), 0, -1):
        theirs = set(itertools.combinations(other, size))
        if any(part in theirs for part in itertools.combinations(one, size)):
            return size
    return 0


@given(st.lists(st.sampled_from(WORDS[:9]), max_size=7), st.lists(st.sampled_from(WORDS[:9]), max_size=7))
@settings(max_examples=200, deadline=None)
def test_rouge_l_is_the_f1_of_the_longest_common_subsequence(one, other):
    shared = longest_common(one, other)
    expected = 2 * shared / (len(one) + len(other)) if shared else 0.0
    assert rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected, abs=1e-12)


def test_rouge_l_stems():
    assert rouge_l("effusions", "effusion") == 1.0


def test_sets_and_errors_by_hand():
    one = {("a", "x", True), ("b", "y", False)}
    assert set_f1(one, one) == 1.0
    assert set_f1(one, {("a", "x", True), ("b", "y", True), ("c", "z", False)}) == 0.4
    assert set_f1([], []) == 0.0
    assert set_f1([], [], empty=1.0) == 1.0
    assert set_f1([], one) == set_f1(one, [], empty=1.0) == 0.0
    assert [green_score(3, 1), green_score(0, 0), green_score(0, 4), green_score(2, 0)] == [0.75, 0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="must not be negative"):
        green_score(-1, 2)


# mAP of boxes without confidences

UNIT = np.array([[0.0, 0.0, 0.4, 0.4]])
OTHER = np.array([[0.5, 0.5, 0.9, 0.9]])
TWO = np.concatenate([UNIT, OTHER])
BY_HAND = [
    ("no box", np.zeros((0, 4)), UNIT, 0.0),
    ("the right one", UNIT, UNIT, 1.0),
    ("a wrong one", OTHER, UNIT, 0.0),
    ("the right one second", TWO, OTHER, 0.5),
    ("the right one first", TWO, UNIT, 1.0),
    ("two on one reference", np.concatenate([UNIT, UNIT]), TWO, 0.5),
    ("duplicates of one reference", np.concatenate([UNIT, UNIT]), UNIT, 1.0),
    ("one of two", UNIT, TWO, 0.5),
    ("both, in the other order", TWO[::-1], TWO, 1.0),
    ("an IoU of exactly one half", np.array([[0.0, 0.0, 0.2, 0.4]]), UNIT, 1.0),
    ("a wrong one between", np.array([*UNIT, [0, 0.5, 0.1, 0.6], *OTHER]), TWO, 0.5 + 0.5 * 2 / 3),
]


@pytest.mark.parametrize(("answer", "true", "expected"), [one[1:] for one in BY_HAND], ids=[one[0] for one in BY_HAND])
def test_precision_by_hand(answer, true, expected):
    assert score_answer(answer, true).precision == pytest.approx(expected, abs=1e-12)


def plainly(answer, true, iou):
    """Return (AP, hits, mean best IoU) by loops over boxes and over recalls."""

    def overlap(a, b):
        w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        shared = max(w, 0) * max(h, 0)
        whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
        return shared / whole if whole else 0.0

    taken, hits, curve = set(), [], [(0.0, 1.0)]
    for number, box in enumerate(answer, start=1):
        values = [overlap(box, one) for one in true]
        best = values.index(max(values))
        hit = values[best] >= iou and best not in taken
        taken |= {best} if hit else set()
        hits.append(hit)
        curve.append((sum(hits) / len(true), sum(hits) / number))
    best = [max((overlap(box, one) for box in answer), default=0.0) for one in true]
    area, before = 0.0, 0.0
    for recall in sorted({point[0] for point in curve if point[0] > 0}):
        area += (recall - before) * max(precision for at, precision in curve if at >= recall)
        before = recall
    return area, sum(hits), sum(best) / len(best)


corner = st.integers(0, 8)
box = (
    st.tuples(corner, corner, corner, corner)
    .filter(lambda one: one[0] != one[2] and one[1] != one[3])
    .map(lambda one: (min(one[0], one[2]), min(one[1], one[3]), max(one[0], one[2]), max(one[1], one[3])))
)


@given(st.lists(box, max_size=5), st.lists(box, min_size=1, max_size=4), st.sampled_from([0.3, 0.5, 0.75]))
@settings(max_examples=1000, deadline=None)
def test_precision_and_best_iou_by_plain_loops(answer, true, iou):
    found = score_answer(np.array(answer, np.float64).reshape(-1, 4), np.array(true, np.float64), iou)
    assert found == pytest.approx(plainly(answer, true, iou), abs=1e-12)


def line(name, asked, boxes, source="own", task="abnormality_grounding", subject="p"):
    return {
        "sample_id": name, "task": task, "source": source, "image_id": f"i{name}", "subject_id": subject,
        "asked": asked, "boxes": {asked: boxes} if boxes else {},
    }  # fmt: skip


def paired(lines, predictions):
    return list(zip(lines, predictions, strict=True))


def test_scores_of_boxes_by_hand():
    lines = [line("1", "edema", UNIT.tolist()), line("2", "edema", TWO.tolist()), line("3", "nodule", OTHER.tolist())]
    found = [AnswerBoxes(UNIT), AnswerBoxes(UNIT, malformed=2), AnswerBoxes(np.zeros((0, 4)))]
    held = {(one.name, one.part): one.value(one.sums.sum(axis=0)) for one in grounding.measures(paired(lines, found))}
    assert {name: held[name, "all"] for name in ("map50", "precision", "recall", "iou", "no_box", "malformed")} == {
        "map50": 0.5, "precision": 1.0, "recall": 0.5, "iou": 0.5, "no_box": 1 / 3, "malformed": 1 / 3,
    }  # fmt: skip
    assert held["map50", "edema"] == 0.75
    assert held["map50", "nodule"] == 0.0
    assert held["map50_mean_of_names", "all"] == 0.375
    left = {one.name: one for one in grounding.measures(paired(lines, [None, *found[1:]])) if one.part == "all"}
    assert left["map50"].value(left["map50"].sums.sum(axis=0)) == 0.25


def test_a_box_where_none_is_right_is_counted():
    found = [AnswerBoxes(UNIT), AnswerBoxes(np.zeros((0, 4))), None, AnswerBoxes(np.zeros((0, 4)))]
    rate = grounding.box_rate(found, [False, False, False, True])[0]
    assert rate.value(rate.sums.sum(axis=0)) == 2 / 3


def test_cocos_ap_is_pycocotools_with_confidences_by_place():
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    rng = np.random.default_rng(3)
    lines, found, truth, told = [], [], [], []
    for number in range(60):
        name = ("edema", "nodule")[number % 2]
        low = rng.uniform(0, 0.6, (int(rng.integers(1, 4)), 2))
        true = np.concatenate([low, low + rng.uniform(0.1, 0.4, low.shape)], axis=1)
        answer = true[: int(rng.integers(0, len(true) + 1))] + rng.normal(0, 0.03, 4)
        answer = np.concatenate([answer, true[:1] * rng.uniform(0.5, 1.0)])
        lines.append(line(str(number), name, true.tolist()))
        found.append(AnswerBoxes(answer))
        for boxes, held in ((true, truth), (answer, told)):
            for place, (x1, y1, x2, y2) in enumerate(1000 * boxes, start=1):
                held.append({
                    "id": len(held) + 1, "image_id": number, "category_id": number % 2, "iscrowd": 0,
                    "bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "score": 1 / place,
                })  # fmt: skip
    coco = COCO()
    coco.dataset = {
        "info": {}, "images": [{"id": number} for number in range(60)], "annotations": truth,
        "categories": [{"id": 0}, {"id": 1}],
    }  # fmt: skip
    coco.createIndex()
    run = COCOeval(coco, coco.loadRes(told), "bbox")
    run.params.iouThrs = np.array(grounding.COCO_IOUS)
    run.evaluate()
    run.accumulate()
    precision = run.eval["precision"][:, :, :, 0, -1]
    ours = grounding.coco(paired(lines, found))
    assert ours["coco_ap50"] == pytest.approx(100 * precision[0].mean(axis=0).mean(), abs=1e-9)
    assert ours["coco_ap"] == pytest.approx(100 * precision.mean(), abs=1e-9)


def test_the_mean_box_counts_a_fact_once_and_knows_its_name():
    train = [line("1", "heart", UNIT.tolist()), line("2", "heart", OTHER.tolist()), line("3", "lung", OTHER.tolist())]
    train.append(train[0] | {"sample_id": "again"})
    mean = grounding.compute_mean_boxes(train)
    np.testing.assert_allclose(grounding.blind_boxes(mean, line("9", "heart", [])), [[0.25, 0.25, 0.65, 0.65]])
    np.testing.assert_allclose(
        grounding.blind_boxes(mean, line("9", "unheard", [])), [np.mean([UNIT, OTHER, OTHER], axis=0)[0]]
    )
    assert grounding.blind_boxes(mean, line("9", "heart", [], source="vindr")).shape == (0, 4)


# Detection


def test_boxes_belong_to_the_class_before_them():
    said = {"Pleural Effusion": "pleural effusion", "Lung Opacity": "lung opacity", "Opacity": "opacity"}
    text = (
        "Lung opacity at [0.10, 0.10, 0.20, 0.20] and [0.30, 0.30, 0.40, 0.40]; a pleural effusion [0.9, 0.1, 0.2, 0.3]"
    )
    found = grounding.find_classes(text, said, load_grammar("unit"), (1, 1))
    assert found.keys() == {"Lung Opacity", "Pleural Effusion"}
    assert found["Lung Opacity"].boxes.tolist() == [[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.4, 0.4]]
    assert found["Pleural Effusion"].boxes.shape == (0, 4)
    assert found["Pleural Effusion"].malformed == 1


def test_detection_by_hand():
    one, other = AnswerBoxes(UNIT), AnswerBoxes(OTHER)
    lines = [
        {"boxes": {"edema": UNIT.tolist(), "nodule": OTHER.tolist()}}, {"boxes": {}}, {"boxes": {}},
    ]  # fmt: skip
    found = [{"edema": one, "fracture": other}, {}, {"edema": one}]
    held = {(m.name, m.part): m.value(m.sums.sum(axis=0)) for m in grounding.class_measures(paired(lines, found))}
    assert held["map50", "all"] == 0.5
    assert held["map50", "edema"] == 1.0
    assert held["map50", "nodule"] == 0.0
    assert ("map50", "fracture") not in held
    assert held["class_f1", "all"] == 2 * 1 / (2 * 1 + 2 + 1)
    assert held["quiet", "all"] == 0.5


# Labels


def test_f1_by_hand_with_an_empty_class():
    names = ("No Finding", "Edema", "Fracture", "Nodule")
    true = [{"Edema"}, {"Edema", "Fracture"}, {"No Finding"}]
    said = [{"Edema"}, {"Fracture", "Nodule"}, set()]
    held = {
        (m.name, m.part): float(m.value(m.sums.sum(axis=0)))
        for m in classification.measures(list(zip(said, true, strict=True)), names, "No Finding")
    }
    assert held["f1", "Edema"] == pytest.approx(2 / 3)
    assert held["f1", "Fracture"] == 1.0
    assert held["support", "Nodule"] == 0.0
    assert held["support", "Edema"] == 2.0
    assert held["macro_f1_13", "all"] == pytest.approx((2 / 3 + 1) / 2)  # no Nodule in the reference
    assert held["macro_f1_zero_13", "all"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert held["macro_f1_14", "all"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert held["micro_f1_13", "all"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


ASSERTED = [
    ("Cardiomegaly, pleural effusion and support devices.", {"Cardiomegaly", "Pleural Effusion", "Support Devices"}),
    ("There is no pneumothorax, but a pleural effusion.", {"Pleural Effusion"}),
    ("No edema, fracture or enlarged cardiomediastinum.", set()),
    ("Possible pneumonia; fractures of ribs.", {"Fracture"}),
    ("Lung opacity consistent with pneumonia.", {"Lung Opacity", "Pneumonia"}),
    ("No abnormality is seen.", {"No Finding"}),
    ("No abnormality but support devices are present.", {"No Finding", "Support Devices"}),
    ("The lungs are clear.", set()),
    ("Nothing abnormal, except for atelectasis.", {"Atelectasis"}),
    ("", set()),
]


@pytest.mark.parametrize(("text", "expected"), ASSERTED)
def test_labels_are_said_where_they_are_asserted(text, expected):
    assert load_label_reader().asserted(text) == expected


def test_the_published_rule_credits_what_is_denied():
    assert load_label_reader().substring("no pneumothorax") == {"Pneumothorax"}


@pytest.mark.parametrize("label", NAMES[1:])
def test_every_label_is_read_alone_denied_and_in_a_list(label):
    reader, other = load_label_reader(), "Fracture" if label != "Fracture" else "Edema"
    assert reader.asserted(f"{label} is present.") == {label}
    assert reader.asserted(f"There is no {label.lower()}.") == set()
    assert reader.asserted(f"{other}, {label.lower()}.") == {label, other}


def test_a_synonym_is_no_label():
    assert load_label_reader().asserted("An enlarged heart.") == set()


def test_no_finding_ignores_devices():
    reader = load_label_reader()
    assert reader.truth(["Support Devices"]) == {"Support Devices", "No Finding"}
    assert reader.truth(["No Finding", "Edema"]) == {"Edema"}
    assert reader.truth([]) == {"No Finding"}


# Grammars of boxes

READ = [
    ("unit", "at [0.10, 0.20, 0.30, 0.40]", (1, 1), [[0.1, 0.2, 0.3, 0.4]], 0),
    ("unit", "at [0.9, 0.1, 0.2, 0.3] or [0.1, 0.1, 0.2, 0.2]", (1, 1), [[0.1, 0.1, 0.2, 0.2]], 1),
    ("unit", "0.1 0.2 0.3 0.4", (1, 1), [], 1),
    ("unit", "half a box [0.1, 0.2, 0.3", (1, 1), [], 1),
    ("unit", "Nothing is seen.", (1, 1), [], 0),
    ("unit", "[0.1，0.2，0.3，0.4]", (1, 1), [[0.1, 0.2, 0.3, 0.4]], 0),
    ("unit", "[0.2, 0.2, 0.2, 0.4]", (1, 1), [], 1),
    ("unit", "[0.1, 0.2, 0.3, 0.4] " * 101, (1, 1), [[0.1, 0.2, 0.3, 0.4]], 0),
    ("unit", " ".join(f"[0.1, 0.2, 0.3, {0.4 + step / 1000:.3f}]" for step in range(101)), (1, 1), [], 1),
    ("hundred", "<|box|>(10,20),(30,40)<|/box|>", (1, 1), [[0.1, 0.2, 0.3, 0.4]], 0),
    ("percent", "[10.5%, 20%, 30%, 40%]", (1, 1), [[0.105, 0.2, 0.3, 0.4]], 0),
    ("grid1000", '{"box": [100, 200, 300, 400]}', (1, 1), [[0.1, 0.2, 0.3, 0.4]], 0),
    ("pixels", "[50, 20, 150, 40]", (200, 100), [[0.25, 0.2, 0.75, 0.4]], 0),
    ("bins", "<obj>x<box><x10><y20><x29><y39></box></obj>", (1, 1), [[0.105, 0.205, 0.295, 0.395]], 0),
    ("bins", "<x10><y20><x05><y39>", (1, 1), [], 1),
    ("bins", "<x10><y20>", (1, 1), [], 1),
]


@pytest.mark.parametrize(("name", "text", "seen", "boxes", "malformed"), READ)
def test_boxes_are_read_by_the_declared_grammar(name, text, seen, boxes, malformed):
    found = load_grammar(name)(text, seen)
    np.testing.assert_allclose(found.boxes, np.array(boxes).reshape(-1, 4), atol=1e-12)
    assert found.malformed == malformed


def test_numbers_of_another_grid_are_no_boxes_of_this_one():
    """A grammar is never guessed. 0 to 1000 read as fractions have no area, or are far more than the picture."""
    told = ("[100, 200, 300, 400]", "[0, 0, 500, 500]", "[0, 0.2, 1, 400]", "[-500, 0.1, 0.9, 0.2]", "[0, 0, 999, 999]")
    for text in told:
        found = load_grammar("unit")(text, (1, 1))
        assert (len(found.boxes), found.malformed) == (0, 1)
    for name, seen in (("hundred", (1, 1)), ("percent", (1, 1)), ("pixels", (100, 100))):
        found = load_grammar(name)("[0, 0, 500, 500]", seen)
        assert (len(found.boxes), found.malformed) == (0, 1)
    some = load_grammar("unit")("[0.1, 0.2, 0.3, 0.4] and [0, 0, 500, 500]", (1, 1))
    assert (some.boxes.tolist(), some.malformed) == ([[0.1, 0.2, 0.3, 0.4]], 1)


def test_a_box_of_which_most_lies_in_the_picture_is_clipped():
    found = load_grammar("unit")("[-0.1, 0.2, 0.3, 1.25]", (1, 1))
    assert (found.boxes.tolist(), found.malformed) == ([[0.0, 0.2, 0.3, 1.0]], 0)
    assert load_grammar("unit")("[0.90, 0.2, 1.08, 0.4]", (1, 1)).boxes.tolist() == [[0.9, 0.2, 1.0, 0.4]]
    assert load_grammar("unit")("[0.90, 0.2, 1.12, 0.4]", (1, 1)).malformed == 1


def test_boxes_of_a_crop_are_mapped_back():
    found = load_grammar("bins", (0.25, 0.0, 0.75, 1.0))("<x00><y00><x99><y99>", (1, 1))
    np.testing.assert_allclose(found.boxes, [[0.2525, 0.005, 0.7475, 0.995]])


@pytest.mark.slow
@given(
    st.text(alphabet="[]()<>0123456789.,-x y|%boxnullNaeEinf\n", max_size=80),
    st.sampled_from(["unit", "bins", "percent"]),
)
@settings(max_examples=10_000, deadline=None)
def test_no_text_breaks_a_grammar(text, name):
    found = load_grammar(name)(text, (100, 100))
    assert (found.boxes >= 0).all()
    assert (found.boxes <= 1).all()
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()


# Annotations of reports


def test_annotations_are_scored_only_where_every_sample_has_them():
    def note(metric, name, of, **told):
        return {"metric": metric, "engine": "hand", "sample_id": name, "of": of} | told

    entities = [["effusion", "present", True], ["left", "modifier", False]]
    held = [
        note("radgraph_f1", "1", "answer", entities=entities), note("radgraph_f1", "1", "filtered", entities=entities),
        note("radgraph_f1", "2", "answer", entities=[]), note("radgraph_f1", "2", "filtered", entities=entities[:1]),
        note("green", "1", "filtered", matched=3, errors=1),
        note("bertscore", "1", "filtered", f1=0.5), note("bertscore", "2", "filtered", f1=0.7),
        note("chexbert_f1", "1", "answer", labels=["Edema"]), note("chexbert_f1", "1", "filtered", labels=["Edema"]),
        note("chexbert_f1", "2", "answer", labels=[]), note("chexbert_f1", "2", "filtered", labels=["Fracture"]),
    ]  # fmt: skip
    notes = reports.read_notes("notes.jsonl", held)
    found = reports.annotation_measures(
        ["1", "2"], [False, False], "filtered", notes, reports.ANNOTATION_METRICS, NAMES
    )
    values = {one.name: float(one.value(one.sums.sum(axis=0))) for one in found}
    assert values == pytest.approx(
        {
            "radgraph_f1": 0.5, "bertscore": 0.6, "chexbert_f1_macro": 0.5, "chexbert_f1_micro": 2 / 3,
            "chexbert_f1_macro_5": 1.0, "chexbert_f1_micro_5": 1.0,  # a fracture is none of the five
        }
    )  # fmt: skip
    # no GREEN: the second report has none
    assert reports.annotation_measures(["1"], [False], "original", notes, reports.ANNOTATION_METRICS, NAMES) == []
    with pytest.raises(UserError, match="line 1: give 'metric'"):
        reports.read_notes("notes.jsonl", [note("meteor", "1", "answer")])


def test_a_failed_annotation_of_labels_counts_as_nothing_said_or_is_left_out():
    same = {"metric": "chexbert_f1", "engine": "hand"}
    held = [
        same | {"sample_id": name, "of": of} | told
        for name, of, told in (
            ("1", "answer", {"labels": ["Edema"]}), ("1", "filtered", {"labels": ["Edema"]}),
            ("2", "answer", {"failure": "too_long"}), ("2", "filtered", {"labels": ["Edema"]}),
        )
    ]  # fmt: skip
    notes = reports.read_notes("notes.jsonl", held)
    for leave_out, value in ((False, 2 / 3), (True, 1.0)):
        found = reports.annotation_measures(
            ["1", "2"], [False] * 2, "filtered", notes, ["chexbert_f1"], NAMES, leave_out
        )
        micro = next(one for one in found if one.name == "chexbert_f1_micro")
        assert float(micro.value(micro.sums.sum(axis=0))) == pytest.approx(value)


@pytest.mark.parametrize(
    ("metric", "lacking"),
    [("bertscore", "f1"), ("radgraph_f1", "entities"), ("green", "matched"), ("chexbert_f1", "labels")],
)
def test_an_annotation_without_its_numbers_stops_with_its_line(metric, lacking):
    line = {"metric": metric, "engine": "hand", "sample_id": "1", "of": "filtered"}
    with pytest.raises(UserError, match=rf"notes.jsonl, line 1 lacks {lacking}, which {metric} needs"):
        reports.read_notes("notes.jsonl", [line])
    assert reports.read_notes("notes.jsonl", [line | {"failure": "too_long"}])


def test_findings_f1_reads_polarity_and_zone():
    true = "Opacity in the left lower lung zone. No pneumothorax."
    told = ["Opacity in the left upper lung zone. No pneumothorax.", "No opacity. No pneumothorax.", true, None, ""]
    held = {one.name: one for one in reports.text_measures(told, [true] * 5, ["findings_f1"])}
    loose, strict = held["findings_f1_without_zone"].sums, held["findings_f1"].sums
    assert loose[:, 0].tolist() == [1.0, 0.5, 1.0, 0.0, 0.0]
    assert loose[:, 1].tolist() == [1, 1, 1, 0, 1]
    assert strict[2, 0] == 1.0
    assert 0 < strict[0, 0] < 1.0


# Intervals


def test_intervals_are_those_of_a_loop_over_replicates():
    rng = np.random.default_rng(1)
    subjects = rng.integers(0, 30, 200).astype(str)
    values, below = rng.uniform(size=200), rng.integers(0, 2, 200).astype(float)
    measures = [Measure("a", "all", np.stack([values * below, below], axis=1), ratio, 1.0),
                Measure("b", "all", np.stack([values, below, below, values], axis=1), mean_ratio, 1.0)]  # fmt: skip
    how = {"replicates": 100, "seed": 5}
    found = score_measures(measures, subjects, level=0.9, **how)
    whole, drawn = resample_sums(subjects, np.stack([values * below, below], axis=1), **how)
    assert found[0].value == pytest.approx(whole[0] / whole[1])
    low, high = percentile_ends((drawn[:, 0] / drawn[:, 1])[:, None], 0.9)
    assert (found[0].low, found[0].high) == (pytest.approx(low[0]), pytest.approx(high[0]))
    names = sorted(set(subjects))
    from cxr.metrics.intervals import draw_weights

    by_hand = [
        sum(row[names.index(s)] * v * b for s, v, b in zip(subjects, values, below, strict=True))
        for row in next(iter(draw_weights(len(names), 100, 5)))
    ]
    np.testing.assert_allclose(drawn[: len(by_hand), 0], by_hand)
    nothing = score_differences(measures, measures, subjects, level=0.9, **how)
    assert [tuple(one) for one in nothing] == [(0.0, 0.0, 0.0)] * 2
    assert score_measures(measures, subjects, level=0.9, replicates=0, seed=1)[0].low is None


def test_answers_measured_at_once_are_worth_what_each_is_alone() -> None:
    rng = np.random.default_rng(3)
    references = [np.sort(rng.random((1 + at % 4, 2, 2)), axis=1).reshape(-1, 4) for at in range(200)]
    answers = [np.concatenate([one, one[:1]])[: at % 5] for at, one in enumerate(references)]
    found = score_answers(answers, references, (0.5, 0.75))
    assert found == [
        [score_answer(*pair, iou) for pair in zip(answers, references, strict=True)] for iou in (0.5, 0.75)
    ]
    assert len({one.precision for one in found[0]}) > 3


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ((0.01, 0.52, 0.31, 0.86), (0.08, 0.43, 0.28, 0.94)),
        ((0.46, 0.11, 0.89, 0.35), (0.45, 0.19, 0.81, 0.37)),
        ((0.61, 0.80, 0.72, 0.91), (0.58, 0.82, 0.74, 0.93)),
    ],
)
def test_an_iou_of_exactly_one_half_is_a_hit(answer, reference):
    """In binary fractions the first two are 0.4999999999999999."""
    assert score_answer(np.array([answer]), np.array([reference])).hits == 1

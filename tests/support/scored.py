"""Run the evaluation stage on given predictions."""

from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_table
from cxr.ils.evaluation.evaluate import run_scores
from cxr.ils.evaluation.summary import read_scores
from evaluation_cases import SIZE, dataset, outputs, predictions

OPTIONS = {"size": SIZE, "replicates": 0, "seed": 7, "model": "ROSALIA"}


def score(tmp_path, entries, masks=None, lines=None, reviewed=None, **options):
    """Run the scores of some predictions; return the tables by name."""
    files = outputs(tmp_path)
    inputs = dataset(tmp_path, lines) | predictions(tmp_path, entries, masks)
    if reviewed is not None:
        (tmp_path / "reviewed.txt").write_text(reviewed)
        inputs["reviewed"] = str(tmp_path / "reviewed.txt")
    run_scores(**inputs, **files, **settings_arguments(run_scores, OPTIONS | options))
    return {
        name: (read_scores if name in ("scores_table", "text_table") else read_table)(path)
        for name, path in files.items()
    }


def own(numbers, **more) -> list[dict]:
    return [{"pair_id": f"p{number}", "answer": None, "mask": f"p{number}"} | more for number in numbers]

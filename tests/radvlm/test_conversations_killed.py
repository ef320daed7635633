"""A job of conversations that is killed in the middle of its lines leaves no half file, and is made anew."""

import os
import signal
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from cxr.radvlm.conversations import converse
from cxr.radvlm.conversations.engine import Conversation, ConversationOptions
from radvlm_mix import sources


def converse_part(made: Path, folder: Path, killed: bool = False) -> Path:
    """Make the conversations of a part of the source own; ``killed``: the process ends at its fourth line."""

    calls, to_line = count(), Conversation.to_line

    def dying(*arguments) -> dict:
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return to_line(*arguments)

    folder.mkdir(exist_ok=True)
    if killed:
        Conversation.to_line = dying
    options = ConversationOptions("rules", 1, 100, "strict", 42)
    converse.run_part(
        images=str(made / "images.parquet"), facts=[str(made / "facts.parquet")], texts=[str(made / "filtered.jsonl")],
        phrases=str(made / "phrases.jsonl"), elsewhere=[], pairs=[], lines=str(folder / "train.jsonl"),
        excluded=str(folder / "train.excluded.parquet"), outcomes=str(folder / "train.outcomes.tsv"), part="train",
        options=options, execution={}, attrs={},
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_a_killed_part_leaves_no_half_file_and_is_made_anew(workflow_run, tmp_path):
    made = sources(workflow_run / "results", tmp_path)
    process = get_context("spawn").Process(target=converse_part, args=(made, tmp_path / "killed", True))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not [path for path in (tmp_path / "killed").iterdir() if not path.name.endswith(".part")]
    whole, again = converse_part(made, tmp_path / "whole"), converse_part(made, tmp_path / "killed")
    names = sorted(path.name for path in whole.iterdir())
    assert len(names) == 3
    assert all((again / name).read_bytes() == (whole / name).read_bytes() for name in names)

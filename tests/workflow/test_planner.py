"""The process that starts Snakemake for the tests."""

import os
from threading import Thread

from conftest import ROOT
from planner import Planner


def test_it_ends_although_another_process_holds_its_pipe():
    """As a process does that was forked while it ran, and outlives the test that forked it."""
    planner = Planner(ROOT).__enter__()
    held = os.dup(planner._process.stdin.fileno())
    try:
        status, text = planner.ask(["--version"])
        ending = Thread(target=planner.__exit__, daemon=True)
        ending.start()
        ending.join(60)
        assert not ending.is_alive()
    finally:
        os.close(held)
    assert (status, planner._process.returncode) == (0, 0)
    assert text.strip()

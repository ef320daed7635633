"""A process of a training (:mod:`cxr.ils.training.train`) with a fault: "kill 7", "nan 5 1", "term 4 1" or "hang 2 1".

That is, in ``FAULT``: killed after the given update; a loss that is no number in the given update, on the given rank
alone; that rank told to stop in it (SIGTERM); that rank asleep before it.
"""

import os
import runpy
import signal
import time

from cxr.ils.training import fit
from cxr.nets.fitting import loop

loop.NAN_LIMIT = int(os.environ.get("NAN_LIMIT", loop.NAN_LIMIT))
what, number, *rank = os.environ["FAULT"].split()
original, losses = fit.Fit._update, fit.compute_losses


def update(self, count, *rest):
    spoils = what == "nan" and count == int(number) and os.environ["RANK"] == rank[0]
    fit.compute_losses = spoilt if spoils else losses
    here = count == int(number) and rank and os.environ["RANK"] == rank[0]
    if what == "term" and here:
        os.kill(os.getpid(), signal.SIGTERM)
    if what == "hang" and here:
        time.sleep(600)
    noted = original(self, count, *rest)
    if what == "kill" and count == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return noted


def spoilt(*arguments, **named):
    found = losses(*arguments, **named)
    return found | {"loss": found["loss"] * float("nan")}


fit.Fit._update = update
runpy.run_module("cxr.ils.training.train", run_name="__main__")

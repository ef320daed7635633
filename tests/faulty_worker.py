"""A process of a training (:mod:`ils.training.worker`) with a fault: ``FAULT`` = "kill 7" or "nan 5 1".

That is: killed after the given update, or a loss that is no number in the given update, on the given rank alone.
"""

import os
import runpy
import signal

from ils.training import fit

what, number, *rank = os.environ["FAULT"].split()
original, losses = fit.Fit._update, fit._losses


def update(self, count, *rest):
    spoils = what == "nan" and count == int(number) and os.environ["RANK"] == rank[0]
    fit._losses = spoilt if spoils else losses
    noted = original(self, count, *rest)
    if what == "kill" and count == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return noted


def spoilt(*arguments, **named):
    found = losses(*arguments, **named)
    return found | {"loss": found["loss"] * float("nan")}


fit.Fit._update = update
runpy.run_module("ils.training.worker", run_name="__main__")

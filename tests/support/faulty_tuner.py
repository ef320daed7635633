"""A worker of a tuning that is killed in the update after its first checkpoint: ``python -m faulty_tuner job.json``."""

import os
import signal

from cxr.nets.fitting.launch import run_worker
from cxr.vlm.tuning import fit, tune

if __name__ == "__main__":
    update = fit.TuningLoop._update

    def killed(self, number, *rest):
        if number == self.checkpoint_every:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, number, *rest)

    fit.TuningLoop._update = killed
    run_worker(tune._tune)

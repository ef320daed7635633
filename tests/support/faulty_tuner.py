"""A worker of a tuning that is killed in the update after its first checkpoint: ``python -m faulty_tuner job.json``."""

import json
import os
import signal
import sys
from pathlib import Path

from cxr.nets.fitting.launch import run_process
from cxr.vlm.tuning import fit
from cxr.vlm.tuning.tune import Job, run_job

if __name__ == "__main__":
    update = fit.TuningLoop._update

    def killed(self, number, *rest):
        if number == self.checkpoint_every:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, number, *rest)

    fit.TuningLoop._update = killed
    run_process(Path(sys.argv[1]), lambda text: run_job(Job(**json.loads(text))))

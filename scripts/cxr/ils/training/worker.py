"""One process of a training over several: ``python -m cxr.ils.training.worker job.json``."""

import json
import sys
from pathlib import Path

from cxr.ils.training.train import Job, train_in_process
from cxr.nets.fitting.launch import run_process

if __name__ == "__main__":
    run_process(Path(sys.argv[1]), lambda text: train_in_process(Job(**json.loads(text))))

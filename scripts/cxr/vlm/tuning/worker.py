"""One process of a distributed tuning: ``python -m cxr.vlm.tuning.worker job.json``."""

import json
import sys
from pathlib import Path

from cxr.nets.fitting.launch import run_process
from cxr.vlm.tuning.tune import Job, run_job

if __name__ == "__main__":
    run_process(Path(sys.argv[1]), lambda text: run_job(Job(**json.loads(text))))

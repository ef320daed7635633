"""One process of a tuning over several: ``python -m cxr.vlm.tuning.worker job.json``."""

import json
import sys
from pathlib import Path

from cxr.nets.fitting.launch import run_process
from cxr.vlm.tuning.tune import Job, work

if __name__ == "__main__":
    run_process(Path(sys.argv[1]), lambda text: work(Job(**json.loads(text))))

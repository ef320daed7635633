"""One process of a training over several: ``python -m ils.training.worker job.json``."""

import json
import os
import sys
from pathlib import Path

from ils.core.run import UserError, start
from ils.core.store import StoreError
from ils.training.stage import Job, work

if __name__ == "__main__":
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    start(str(Path(job.folder, f"rank{os.environ['RANK']}.log")))
    try:
        work(job)
    except (UserError, StoreError) as error:
        Path(job.folder, "fault").write_text(str(error), encoding="utf-8")
        sys.exit(1)

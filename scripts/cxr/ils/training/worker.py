"""One process of a training over several: ``python -m cxr.ils.training.worker job.json``."""

import json
import logging
import os
import sys
from pathlib import Path

from torch import distributed

from cxr.base.atomic import atomic
from cxr.base.errors import StoreError, UserError
from cxr.ils.training.train import Job, work

if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    # the stage reads this output and copies it into its own log
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, format=f"process {rank}: %(message)s", stream=sys.stdout, force=True)
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    try:
        work(job)
    except (UserError, StoreError) as error:
        with atomic(Path(job.folder, "fault")) as temporary:
            temporary.write_text(str(error), encoding="utf-8")
        sys.exit(1)
    if distributed.is_initialized():
        distributed.destroy_process_group()

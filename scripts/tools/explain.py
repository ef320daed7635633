"""Print every decision about a study and its reason, from the stored results. No stage runs again.

python scripts/tools/explain.py STUDY [--results results] [--thresholds default half] [--page study.html]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cxr.base.atomic import atomic_file
from cxr.base.errors import StoreError, UserError
from cxr.reporting.explain.explain_study import explain

DPI = 110


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="a study_id of results/cohort/images.parquet")
    parser.add_argument("--results", default="results", help="folder of the results")
    parser.add_argument("--thresholds", nargs="+", default=[], help="threshold sets; default: all that have masks")
    parser.add_argument("--page", help="HTML file to write, with images")
    options = parser.parse_args(arguments)
    try:
        text, page = explain(options.results, options.study, options.thresholds, DPI)
    except (UserError, StoreError) as error:
        print(f"cxr-ils: {error}", file=sys.stderr)
        return 1
    print(text, end="")
    if options.page:
        with atomic_file(Path(options.page)) as temporary:
            temporary.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

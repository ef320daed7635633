"""Count how often RadVLM's filter and conversations call a language model, per report.

    python benchmarks/calls.py [--run FOLDER]

The engines ``vllm`` call a stand-in of the tests, which answers like the engines ``rules``. A question that is repeated
after an unusable answer is counted separately. ``--run``: folder of a finished ``snakemake radvlm_instructions``, whose
reports are counted too.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/support")]

from cxr.base.tables import read_lines  # noqa: E402
from cxr.language.reports import sentences  # noqa: E402
from cxr.llm import client  # noqa: E402
from cxr.radvlm.conversations import engine as conversations  # noqa: E402
from cxr.radvlm.conversations.converse import PARTS, read_requests  # noqa: E402
from cxr.radvlm.conversations.engine import ConversationOptions, Request  # noqa: E402
from cxr.radvlm.conversations.facts import ImageFacts  # noqa: E402
from cxr.radvlm.conversations.vllm import describe_facts  # noqa: E402
from cxr.radvlm.filtered import engine as filtered  # noqa: E402
from cxr.radvlm.filtered.engine import FilteredText, FilterOptions  # noqa: E402

SHARED = (ROOT / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve()
OPENI = SHARED / "fixtures/openi_reports.jsonl"
OWN = "radvlm/{}/own"
MODEL = {
    "transport": "stand_in", "model": "radvlm_model:answer", "revision": "", "context": 16384, "max_tokens": 2048,
    "dtype": "auto", "retries": 2, "seed": 1,
}  # fmt: skip
FILTER = MODEL | {"key": "radvlm.filtered.llm", "temperature": 0.0, "retry_temperature": 0.5}
CONVERSE = MODEL | {"key": "radvlm.conversations.llm", "temperature": 0.7, "retry_temperature": 0.7}
EXECUTION = {
    "gpus": 0, "gpu_memory": 0.9, "server": "", "requests": 1, "timeout_s": 1, "remote_ok": False,
}  # fmt: skip
Sections = list[list[str]]


def in_sentences(texts: Sequence[str]) -> Sections:
    """Split each text into sentences."""
    return [[text[start:end] for start, end in sentences.split_sentences(text)] for text in texts]


def openi() -> list[str]:
    """Return the texts of Open-i's reports. If they are missing, print a message and return no texts."""
    if not OPENI.is_file():
        print(f"Open-i's reports are left out: there is no file {OPENI}")
        return []
    lines = map(json.loads, OPENI.read_text(encoding="utf-8").splitlines())
    return [line["findings"].strip() or line["impression"].strip() for line in lines]


def facts_of(reports: Sequence[FilteredText]) -> list[ImageFacts]:
    """Return the facts of reports, which consist only of the reports' filtered texts."""
    texts = [{at: line.text for at, line in enumerate(each.sentences, start=1) if line.text} for each in reports]
    return [ImageFacts("own", f"i{at}", f"s{at}", f"p{at}", "train", sentences=text) for at, text in enumerate(texts)]


@contextmanager
def counted() -> Iterator[Counter]:
    """Count the questions to the model inside this context; yield {attempt: number of questions}."""
    calls: Counter = Counter()
    connect = client.TRANSPORTS["stand_in"]

    def counting(*arguments):
        ask = connect(*arguments)

        def generate(questions, attempt):
            calls[attempt] += len(questions)
            return ask(questions, attempt)

        return generate

    with patch.dict(client.TRANSPORTS, stand_in=counting):
        yield calls


def row(stage: str, texts: Sequence, reports: int, calls: Counter) -> dict:
    """Return a row of the table: the number of calls per report, and a title with the numbers behind it."""
    equal = len(texts) - len(set(map(repr, texts)))
    numbers = f"{calls[0]} for {reports} reports, {equal} texts as before; {calls.total() - calls[0]} asked again"
    title = f"calls of {stage}: {numbers}"
    return {"what": title, "against": "one a report", "ratio": calls[0] / reports, "target": None}


def of_filter(cohort: str, sections: Sections) -> tuple[dict, list[FilteredText]]:
    """Return (row of the filter, filtered texts) for the reports of a cohort."""
    options = FilterOptions("vllm", "drop", model=FILTER)
    with counted() as calls:
        texts = filtered.load_engine(options, EXECUTION).filter(sections)
    return row(f"the filter, {cohort}", sections, len(sections), calls), texts


def talking(**changed: object) -> ConversationOptions:
    """Return the options of the conversations, with changes."""
    return ConversationOptions("vllm", 1, 100_000, "strict", 42, model=CONVERSE, **changed)


def of_conversations(cohort: str, requests: Sequence[Request], reports: int) -> dict:
    """Return the row of the conversations. Each request asks for a conversation about one image."""
    with counted() as calls:
        conversations.load_engine(talking(), EXECUTION).converse(requests)
    texts = [(describe_facts(each.facts, each.grounded), each.grounded) for each in requests]
    return row(f"the conversations, {cohort}", texts, reports, calls)


def of_run(results: Path) -> Iterator[dict]:
    """Yield the rows of a run's cohort. If its filtered texts are missing, print a message and yield nothing."""
    sources, texts = results / OWN.format("sources"), results / OWN.format("filtered")
    if not (texts / "texts.jsonl").is_file():
        print(f"the cohort's reports are left out: there is no file {texts / 'texts.jsonl'}")
        return
    reports = [line["text"] for line in read_lines(sources / "texts.jsonl")]
    yield of_filter("the cohort", in_sentences(reports))[0]
    files = {
        "images": str(sources / "images.parquet"), "facts": [str(sources / "facts.parquet")],
        "texts": [str(texts / "texts.jsonl")], "phrases": str(texts / "phrases.jsonl"), "elsewhere": [],
        "pairs": list(map(str, results.glob("dataset/default/*.jsonl"))),
    }  # fmt: skip
    requests = [each for part in PARTS for each in read_requests(**files, part=part, options=talking())]
    yield of_conversations("the cohort", requests, len(reports))


def of_calls(results: Path) -> list[dict]:
    """Print and return the rows of Open-i's reports and of a run's reports."""
    rows = []
    if texts := openi():
        filtering, filtered_texts = of_filter("Open-i", in_sentences(texts))
        requests = [Request(facts, grounded=False) for facts in facts_of(filtered_texts)]
        rows = [filtering, of_conversations("Open-i", requests, len(texts))]
    rows += of_run(results)
    for line in rows:
        print(f"{line['what']}: {line['ratio']:.3f} of {line['against']}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="results", type=Path)
    of_calls(parser.parse_args().run)

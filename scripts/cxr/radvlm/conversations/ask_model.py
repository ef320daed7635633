"""Ask a language model for the conversations of all sources and parts in one job, so that it is loaded once.

The jobs of the parts then build the conversations from its replies, without a model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cxr.base.jobs import log
from cxr.base.tables import write_lines
from cxr.llm.answer_cache import record_replies
from cxr.llm.asking import Generate
from cxr.radvlm.conversations.converse import read_requests, split_batches
from cxr.radvlm.conversations.engine import ConversationOptions, ConversationRequest
from cxr.radvlm.conversations.vllm import build_engine, build_model


@dataclass(frozen=True)
class AskOptions(ConversationOptions):
    """works: one per output, with ``source``, ``part``, ``kinds`` and ``files``, the path arguments of
    :func:`cxr.radvlm.conversations.converse.read_requests`.
    """

    works: Sequence[Mapping] = ()


def run(
    *, files: Sequence[str], replies: Sequence[str], options: AskOptions, execution: Mapping, code: str = ""
) -> None:
    """Write the model's replies, one file of ``replies`` per work: lines of question, attempt and text.

    ``files``: all inputs. Replies are cached as they arrive, so an interrupted job can resume. Raises UserError if the
    model cannot be reached.
    """
    del files  # the works name them
    folder = Path(replies[0]).parents[1] / "answers" / "-".join(dict.fromkeys(work["part"] for work in options.works))
    generate = build_model(options, dict(execution) | {"answers": str(folder), "code": code})
    for work, output in zip(options.works, replies, strict=True):
        log.info("radvlm_conversations: asking the model about %s, %s", work["source"], work["part"])
        source_options = replace(options, kinds=work["kinds"])
        requests = read_requests(**work["files"], part=work["part"], options=source_options)
        write_lines(output, _conversation_lines(requests, source_options, generate), checked=True)


def _conversation_lines(
    requests: Iterable[ConversationRequest], options: ConversationOptions, generate: Generate
) -> Iterator[dict]:
    lines: list[dict] = []
    engine = build_engine(options, record_replies(generate, lines))
    for batch in split_batches(requests):
        engine.converse(batch)
        yield from lines
        lines.clear()

"""A language model for RadVLM's prompts: it answers as the rules engines would, from the prompt alone."""

import json
import re

from cxr.language.reports import sentences
from cxr.radvlm.conversations import engine
from cxr.radvlm.conversations.engine import ConversationOptions, Request
from cxr.radvlm.conversations.facts import ImageFacts, Phrase
from cxr.radvlm.filtered.engine import FilterOptions
from cxr.radvlm.filtered.rules import load_sentence_filter

FILTER = FilterOptions("rules", "drop")
CONVERSE = ConversationOptions("rules", 1, 1, "strict", 42)
NUMBER = r"\d\.\d\d"


def answer(messages: list[dict], schema: dict) -> str:
    """Answer a request of the filter or of the conversations."""
    user = messages[-1]["content"]
    return json.dumps(single_image(user) if "sentences" in schema["properties"] else conversation(user))


def single_image(user: str) -> dict:
    """Return what the filter's rules make of the numbered sentences of a prompt."""
    made = map(load_sentence_filter(FILTER), re.findall(r"^\d+\. (.*)$", user, flags=re.M))
    return {"sentences": [{"index": at, "text": one.text} for at, one in enumerate(made, start=1)]}


def conversation(user: str) -> dict:
    """Return the rounds that the rules make of the facts of a prompt; neutral ones where these are too few."""
    phrases = re.findall(r"^- box of “(.*)”: (.*)$", user, flags=re.M)
    (made,) = engine.load_engine(CONVERSE, {}).converse([Request(facts_of(user, phrases), bool(phrases))])
    if isinstance(made, engine.Fault):
        return {"rounds": [{"question": f"What of {at}?", "answer": f"It is {at}."} for at in range(6)]}
    texts = [message["text"] for message in made.to_messages()]
    return {"rounds": [{"question": one, "answer": two} for one, two in zip(texts[::2], texts[1::2], strict=True)]}


def facts_of(user: str, phrases: list[tuple[str, str]]) -> ImageFacts:
    """Return the facts that a prompt tells."""
    told = dict(re.findall(r"^- (report|abnormalities|view|sex): (.*)$", user, flags=re.M))
    text = told.get("report", "")
    return ImageFacts(
        "own", "i", "s", "p", "train", view=told.get("view"), sex=told.get("sex"),
        sentences={at: text[start:end] for at, (start, end) in enumerate(sentences.split_sentences(text), start=1)},
        present=tuple(filter(None, told.get("abnormalities", "").split(", "))),
        phrases=tuple(Phrase(name, boxes_of(written)) for name, written in phrases),
    )  # fmt: skip


def boxes_of(written: str) -> tuple[tuple[float, ...], ...]:
    """Return the boxes of a text."""
    values = list(map(float, re.findall(NUMBER, written)))
    return tuple(tuple(values[at : at + 4]) for at in range(0, len(values), 4))

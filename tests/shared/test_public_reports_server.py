"""Replies of language-model servers after public bug reports."""

import json

import pytest

from cxr.base.errors import UserError
from input_doors import GOOD, Reply, ask_server


def given_reply(shared, name: str) -> Reply:
    path = shared / "fixtures/public_reports/l1_server_answers/replies.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    (line,) = (line for line in lines if line["name"] == name)
    return Reply(line["body"], line["status"])


@pytest.mark.parametrize("name", ["choices null", "choices empty"])
def test_a_reply_without_choices_fails_its_question_alone(shared, name):
    (broken, good), prompts = ask_server("broken", "good", broken=given_reply(shared, name))
    assert good.value == GOOD
    assert broken.value is None
    assert broken.problem
    assert prompts.count("broken") == 2  # it was asked again


def test_a_refused_key_is_named(shared):
    with pytest.raises(UserError, match="OPENAI_API_KEY") as caught:
        ask_server("broken", broken=given_reply(shared, "401"))
    assert "Incorrect API key provided" in str(caught.value)


def test_the_servers_sentence_on_a_bad_request_reaches_the_answer(shared):
    (broken, good), _ = ask_server("broken", "good", broken=given_reply(shared, "400"))
    assert good.value == GOOD
    assert "maximum context length is 4096 tokens" in f"{broken.problem} {broken.raw}"

"""What a language-model server may send: every malformed reply costs its question alone; statuses are explained."""

import gzip
import json
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest
from test_llm import EXECUTION, MODEL, PROMPT

import language_model
from cxr.base.errors import UserError
from cxr.base.faults import Broken
from cxr.llm.answer_cache import cache_replies, record_replies, replay_replies
from cxr.llm.asking import Answer, Question, ask
from cxr.llm.client import connect
from cxr.llm.messages import fill_prompt
from cxr.llm.replies import NoAnswer, first_sentence, object_schema, read_reply, text_schema
from http_server import Quiet, running

SERVED = replace(MODEL, transport="server", model=language_model.MODEL)
SCHEMA = object_schema(finding=text_schema(20))
GOOD = json.dumps({"finding": "effusion"})
KEY = "some.stage.llm.execution.server"


def completion(content: object = GOOD, **more: object) -> dict:
    """Return a chat completion whose message has this content and the fields ``more``."""
    message = {"role": "assistant", "content": content} | more
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@contextmanager
def replying(*replies: tuple[int, object], headers: dict | None = None, models: tuple[int, object] = (200, None)):
    """Serve these replies (status, body) in turn, then the last for ever; yield the address and the requests' paths."""
    paths: list[str] = []
    listed = {"object": "list", "data": [{"id": language_model.MODEL, "object": "model"}]}

    class Handler(Quiet):
        def do_GET(self):
            self._send(models[0], listed if models[1] is None else models[1])

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self._send(*replies[min(len(paths), len(replies)) - 1])

        def _send(self, status: int, body: object):
            data = (
                body
                if isinstance(body, bytes)
                else body.encode()
                if isinstance(body, str)
                else json.dumps(body).encode()
            )
            self.send_response(status)
            named = {"Content-Type": "application/json", "Content-Length": str(len(data)), "retry-after-ms": "1"}
            for name, value in (named | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    with running(Handler) as address:
        yield f"{address}/v1", paths


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.001)


def question(text: str = "this", schema: dict | None = SCHEMA) -> Question:
    return Question(fill_prompt(PROMPT, thing=text), schema)


def asked(address: str, questions: int = 1, **changes: object) -> list[Answer]:
    execution = replace(EXECUTION, server=address, requests=1)
    generate = connect(SERVED, execution)
    return ask([question(f"x{number}") for number in range(questions)], generate, replace(MODEL, **changes))


# ------------------------------------------------------------------------------------------------ malformed replies

MALFORMED = {
    "choices null": ({"choices": None}, "the reply has no choices"),
    "choices empty": ({"choices": []}, "the reply has no choices"),
    "choices missing": ({"id": "1"}, "the reply has no choices"),
    "choices of null": ({"choices": [None]}, "the reply has no choices"),
    "choices no list": ({"choices": {"0": {}}}, "the reply has no choices"),
    "an error in a good status": (
        {"choices": None, "error": {"message": "Provider returned error", "code": 502}},
        "the reply has no choices (Provider returned error)",
    ),
    "a plain error": ({"error": "overloaded, try later. Thanks."}, "the reply has no choices (overloaded, try later)"),
    "message null": ({"choices": [{"message": None}]}, "the reply has no message"),
    "message missing": ({"choices": [{"text": "x"}]}, "the reply has no message"),
    "content null": (completion(None), "the message has no content"),
    "content missing": ({"choices": [{"message": {"role": "assistant"}}]}, "the message has no content"),
    "content of parts": (completion([{"type": "text", "text": GOOD}]), "the message's content is not a text"),
    "content a number": (completion(7), "the message's content is not a text"),
    "content an object": (completion({"finding": "effusion"}), "the message's content is not a text"),
    "only reasoning": (completion(None, reasoning_content="hm"), "the model reasoned and did not answer"),
    "only reasoning, newer name": (completion(None, reasoning="hm"), "the model reasoned and did not answer"),
    "reasoning to the end": (
        {"choices": [{"message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}]},
        "the model reasoned and did not answer before max_tokens",
    ),
    "a refusal": (completion(None, refusal="I cannot"), "the model refused"),
    "a tool call": (completion(None, tool_calls=[{"id": "1"}]), "the message has no content"),
    "a list": ([completion()], "the reply is not a JSON object"),
    "null": ("null", "the reply is not a JSON object"),
    "a text": ('"ok"', "the reply is not a JSON object"),
    "a page": (
        "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>",
        "the reply is an HTML page (502 Bad Gateway)",
    ),
    "a page without a title": ("<html><body>Please log in.</body></html>", "the reply is not JSON"),
    "broken JSON": (json.dumps(completion())[:-3], "the reply is not JSON"),
    "nothing": ("", "the reply is not JSON"),
    "a stream": ("data: {}\n\ndata: [DONE]", "the reply is not JSON"),
    "deep": ("[" * 100_000, None),
    "not UTF-8": (b'{"choices": [{"message": {"content": "\xff\xfe"}}]}', None),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_costs_its_question_alone(name):
    body, reason = MALFORMED[name]
    good = (200, completion())
    with replying(good, (200, body), good, (200, body)) as (address, paths):
        answers = asked(address, questions=3, retries=1)
    assert len(paths) == 4  # that question alone is asked again
    assert [answer.value for answer in answers] == [{"finding": "effusion"}, None, {"finding": "effusion"}]
    assert answers[1].attempts == 2
    if reason:
        assert answers[1] == Answer(problem=f"no answer: {reason}", attempts=2)
    with replying((200, body), good) as (address, paths):
        assert asked(address, retries=1)[0] == Answer({"finding": "effusion"}, attempts=2)


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "application/octet-stream", ""])
def test_the_content_type_makes_no_difference(content_type):
    with replying((200, completion()), headers={"Content-Type": content_type}) as (address, _):
        assert asked(address)[0].value == {"finding": "effusion"}
    with replying((200, "<html>Sign in</html>"), headers={"Content-Type": content_type}) as (address, _):
        assert asked(address, retries=0)[0].problem == "no answer: the reply is not JSON"


def test_a_body_that_is_cut_short_costs_its_question_alone():
    data = json.dumps(completion()).encode()
    with replying((200, data), headers={"Content-Length": str(len(data) + 9), "Connection": "close"}) as (address, _):
        generate = connect_past_models(address)
        (reply,) = generate([question()], 0)
    assert reply == NoAnswer("the reply was cut off or cannot be read (RemoteProtocolError)")


def test_a_body_of_a_wrong_encoding_costs_its_question_alone():
    with replying((200, b"no gzip"), headers={"Content-Encoding": "gzip"}) as (address, _):
        (reply,) = connect_past_models(address)([question()], 0)
    assert reply == NoAnswer("the reply was cut off or cannot be read (DecodingError)")
    packed = gzip.compress(json.dumps(completion()).encode())
    with replying((200, packed), headers={"Content-Encoding": "gzip"}) as (address, _):
        assert connect_past_models(address)([question()], 0) == [GOOD]


def connect_past_models(address: str):
    """Return the function that asks a server whose list of models has the same headers as its replies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cxr.llm.server._check_model", lambda *_: None)
        return connect(SERVED, replace(EXECUTION, server=address, requests=1))


def test_a_server_that_never_answers_well_stops_the_job_in_one_sentence():
    limits = {"failures_in_row": 3}
    with replying((200, {"choices": None, "error": {"message": "Provider returned error"}})) as (address, _):
        generate = connect(SERVED, replace(EXECUTION, server=address))
        with pytest.raises(Broken, match=r"^some\.stage\.llm: none of the model's 3 answers can be used \(no answer: "
                           r"the reply has no choices \(Provider returned error\)\)"):  # fmt: skip
            ask([question(str(number)) for number in range(3)], generate, MODEL, limits)


# ------------------------------------------------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"message": "This model's maximum context length is 4096 tokens. However, you asked", "code": 400},
         "400: This model's maximum context length is 4096 tokens"),
        (400, {"error": {"message": "'response_format' of type 'json_schema' is not supported by this model"}},
         "400: 'response_format' of type 'json_schema' is not supported by this model"),
        (400, {"error": "`json_schema` unknown\nsecond line"}, "400: 'json_schema' unknown second line"),
        (413, "<html><head><title>Entity Too Large</title></head></html>", "413: Entity Too Large"),
        (422, {"detail": [{"loc": ["body"], "msg": "Input should be a valid string", "input": "Frau Müller"}]},
         "422: Input should be a valid string"),
        (422, {"detail": "Frau Müller"}, "422: Frau Müller"),
        (400, {"error": {"message": "odd 'Frau Müller, MRN 7' in the prompt"}}, "400: odd '…' in the prompt"),
        (400, "", "400"),
    ],
)  # fmt: skip
def test_a_status_of_one_question_costs_that_question_and_is_quoted(status, body, reason):
    good = (200, completion())
    with replying(good, (status, body), good, (status, body)) as (address, paths):
        answers = asked(address, questions=3, retries=1)
    assert len(paths) == 4
    assert answers[1] == Answer(problem=f"no answer: the server refuses the question ({reason})", attempts=2)
    assert answers[0].value == answers[2].value == {"finding": "effusion"}


@pytest.mark.parametrize(
    ("status", "sentence", "calls"),
    [
        (401, r"refuses the key in OPENAI_API_KEY (401: no good): export the right key", 1),
        (403, r"refuses the key in OPENAI_API_KEY (403: no good): export the right key", 1),
        (404, r"does not know the requested path (404: no good): correct the address, which usually ends in /v1", 1),
        (429, r"has too many requests (429: no good): lower some.stage.llm.execution.requests, or wait", 6),
        (500, r"fails (500: no good): see the server's log, then rerun", 6),
        (502, r"fails (502: no good): see the server's log, then rerun", 6),
        (503, r"fails (503: no good): see the server's log, then rerun", 6),
        (302, r"answers with status 302: no good: correct the address", 1),
        (405, r"answers with status 405: no good: correct the address", 1),
    ],
)
def test_a_status_of_the_whole_server_stops_the_job_in_one_sentence(status, sentence, calls):
    with replying((status, {"error": {"message": "no good. Or is it?"}})) as (address, paths):
        with pytest.raises(UserError, match=f"^{re.escape(f'{KEY}: {address} {sentence}')}$"):
            asked(address, questions=1)
        assert len(paths) == calls


def test_what_passes_is_waited_for():
    with replying((503, ""), (429, ""), (500, "x"), (200, completion())) as (address, paths):
        assert asked(address)[0] == Answer({"finding": "effusion"}, attempts=1)
    assert len(paths) == 4


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ((401, {"error": {"message": "Incorrect API key provided"}}),
         r"refuses the key in OPENAI_API_KEY \(401: Incorrect API key provided\)"),
        ((404, "<html><title>Not Found</title></html>"), r"does not know the requested path \(404: Not Found\)"),
        ((200, "<html><title>Welcome to nginx!</title></html>"), r"lists no models \(Welcome to nginx\): give"),
        ((200, {"data": None}), r"lists no models: give the address of an OpenAI-compatible server"),
        ((200, "[]"), r"lists no models: give"),
        ((200, {"data": ["x"]}), r"lists no models: give"),
        ((500, ""), r"fails \(500\): see the server's log"),
    ],
)  # fmt: skip
def test_a_list_of_models_that_is_none_is_one_sentence(models, sentence):
    with replying((200, completion()), models=models) as (address, paths):
        with pytest.raises(UserError, match=rf"^{re.escape(KEY)}: {re.escape(address)} {sentence}"):
            asked(address)
        assert paths == []


def test_a_long_sentence_is_shortened_and_quotes_no_path():
    assert first_sentence("a " * 300) == ("a " * 99).strip() + " …"
    assert (
        first_sentence('{"error": {"message": "cannot load /data/Müller/x.png: no such file"}}')
        == "cannot load … no such file"
    )
    assert [first_sentence(body) for body in ("", "{}", "[]", "7", '{"error": null}')] == [""] * 5
    assert read_reply(json.dumps(completion(""))) == ""


# ------------------------------------------------------------------------------------------- reasoning and fences

REPLIES = {
    "plain": (GOOD, True),
    "a fence": (f"```json\n{GOOD}\n```", True),
    "a fence without a name": (f"```\n{GOOD}\n```\n", True),
    "a fence in capitals": (f"```JSON\n{GOOD}\n```", True),
    "reasoning": (f"<think>\nIs it {{}}? Or {GOOD}?\n</think>\n\n{GOOD}", True),
    "no reasoning": (f"<think></think>{GOOD}", True),
    "reasoning that the prompt opened": (f"maybe {{}}.\n</think>\n{GOOD}", True),
    "reasoning and a fence": (f"<think>hm</think>\n```json\n{GOOD}\n```", True),
    "a tag in a value": (json.dumps({"finding": "a</think>b"}), True),
    "open reasoning": (f"<think>\n{GOOD}", False),
    "reasoning twice": (f"<think>a</think><think>b</think>{GOOD}", True),
    "an open fence": (f"```json\n{GOOD}", False),
    "two fences": (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", False),
    "words around a fence": (f"Here it is:\n```json\n{GOOD}\n```", False),
    "reasoning after it": (f"{GOOD}<think>hm</think>", True),
    "open reasoning after closed": (f"<think>a</think><think>{GOOD}", False),
    "nothing but reasoning": ("<think>hm</think>", False),
}


@pytest.mark.parametrize("name", REPLIES)
def test_one_fence_and_closed_reasoning_are_not_part_of_the_answer(name):
    reply, is_read = REPLIES[name]
    (answer,) = ask([question()], lambda questions, attempt: [reply], replace(MODEL, retries=0))
    if is_read:
        assert answer.value == ({"finding": "a</think>b"} if name == "a tag in a value" else {"finding": "effusion"})
    else:
        assert answer == Answer(problem="not JSON", raw=reply, attempts=1)


def test_a_free_text_has_no_reasoning():
    for reply, text in (("<think>no</think>\nNo effusion.", "No effusion."), ("<think>No effusion.",) * 2):
        (answer,) = ask([question(schema=None)], lambda questions, attempt, reply=reply: [reply], MODEL)
        assert answer.value == text


# -------------------------------------------------------------------------------------------------- on disk


def test_a_reply_without_an_answer_is_asked_again_by_the_next_job_and_repeated_as_such(tmp_path):
    calls = []

    def generate(questions, attempt):
        calls.append(len(questions))
        return [NoAnswer("the reply has no choices"), GOOD]

    questions = [question("a"), question("b")]
    kept = cache_replies(generate, folder=tmp_path / "answers", digest="m")
    lines: list[dict] = []
    replies = record_replies(kept, lines)(questions, 0)
    assert kept(questions, 0) == replies == [NoAnswer("the reply has no choices"), GOOD]
    assert calls == [2]
    again = cache_replies(lambda questions, attempt: [GOOD] * len(questions), folder=tmp_path / "answers", digest="m")
    assert again(questions, 0) == [GOOD, GOOD]
    path = tmp_path / "told.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert replay_replies([str(path)], "rule")(questions, 0) == replies

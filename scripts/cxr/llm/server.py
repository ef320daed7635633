"""Asking a running OpenAI-compatible server (``vllm serve`` and others) instead of a model inside the job."""

import json
import logging
import os
import ssl
from concurrent.futures import ThreadPoolExecutor

from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.llm.asking import Generate, NoAnswer, Question, Reply
from cxr.llm.messages import for_server
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.remote import refuse_remote
from cxr.llm.replies import first_sentence, read_reply

REFUSED_QUESTION = (400, 413, 422)
"""Statuses that tell of one question: malformed, too long, or a schema that the server does not know."""
CUT_REPLY = {"RemoteProtocolError", "ReadError", "DecodingError"}
"""Error classes of the HTTP library for a reply that ends too early or cannot be decoded."""


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return the function that asks the server.

    Raises UserError if it does not answer, lacks the model, or is outside the private network without ``remote_ok``.
    """
    import openai

    key, address = execution.server_key, execution.server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)  # otherwise one line per request
    if not execution.remote_ok:
        refuse_remote(key, address, execution.remote_key)
    client = openai.OpenAI(
        base_url=address,
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        timeout=execution.timeout_s,
        max_retries=5,
        http_client=None if execution.remote_ok else _direct(),
    )
    _check_model(client, options, key, address)

    def ask_one(question: Question, attempt: int) -> Reply:
        temperature, seed = options.sampling(attempt, question.seed)
        # response_format, not the old guided_* keys: a server that no longer knows those answers unconstrained
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        form = openai.omit if question.schema is None else {"type": "json_schema", "json_schema": schema}
        try:
            raw = client.chat.completions.with_raw_response.create(
                model=options.model,
                messages=for_server(question.messages),
                temperature=temperature,
                seed=seed,
                max_tokens=options.max_tokens,
                response_format=form,
            )
        except openai.APIStatusError as error:
            if error.status_code not in REFUSED_QUESTION:
                raise
            return NoAnswer(f"the server refuses the question ({_status(error)})")
        except openai.APIConnectionError as error:
            if type(error.__cause__).__name__ not in CUT_REPLY:
                raise
            return NoAnswer(f"the reply was cut off or cannot be read ({type(error.__cause__).__name__})")
        return read_reply(raw.http_response.text)

    def generate(questions: list[Question], attempt: int) -> list[Reply]:
        with ThreadPoolExecutor(execution.requests) as pool:
            replies = pool.map(lambda question: ask_one(question, attempt), questions)
            try:
                return list(progress(replies, len(questions), "answers"))
            except openai.OpenAIError as error:
                pool.shutdown(cancel_futures=True)
                raise _fault(key, address, error) from None

    return generate


def _direct():
    """Return a client that sends nothing elsewhere: it uses no proxy of the environment and follows no redirect."""
    import openai

    # the context honours SSL_CERT_FILE, which a client without its environment ignores
    return openai.DefaultHttpxClient(trust_env=False, follow_redirects=False, verify=ssl.create_default_context())


def _check_model(client, options: ModelOptions, key: str, address: str) -> None:
    import openai

    try:
        body = client.models.with_raw_response.list().http_response.text
    except openai.OpenAIError as error:
        raise _fault(key, address, error) from None
    try:
        served = [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        sentence = first_sentence(body)
        raise UserError(
            f"{key}: {address} lists no models{f' ({sentence})' if sentence else ''}: give the address of an "
            "OpenAI-compatible server, which usually ends in /v1"
        ) from None
    if options.model not in served:
        raise UserError(
            f"{options.key}.model: the server at {address} has no {options.model!r}: "
            f"choose one of {', '.join(served) or 'none'}, or serve it"
        )


def _status(error) -> str:
    sentence = first_sentence(error.response.text)
    return f"{error.status_code}: {sentence}" if sentence else str(error.status_code)


def _fault(key: str, address: str, error: Exception) -> UserError:
    """Return why a server cannot be used at all, and what to do."""
    import openai

    section = key.rpartition(".")[0]
    if isinstance(error, openai.APIStatusError):
        status = _status(error)
        if error.status_code in (401, 403):
            return UserError(f"{key}: {address} refuses the key in OPENAI_API_KEY ({status}): export the right one")
        if error.status_code == 404:
            return UserError(
                f"{key}: {address} does not know what it was asked ({status}): correct the address, which usually ends "
                "in /v1"
            )
        if error.status_code == 429:
            return UserError(f"{key}: {address} has too many requests ({status}): lower {section}.requests, or wait")
        if error.status_code >= 500:
            return UserError(f"{key}: {address} fails ({status}): see its log, and run again")
        return UserError(f"{key}: {address} answers with status {status}: correct the address")
    if isinstance(error, openai.APITimeoutError):
        return UserError(f"{key}: {address} does not answer in time: raise {section}.timeout_s, or see its log")
    return UserError(f"{key}: {address} does not answer ({type(error).__name__}): start it, or correct the address")

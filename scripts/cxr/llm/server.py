"""Asking a running OpenAI-compatible server, such as ``vllm serve``. Servers outside private networks are refused."""

import json
import logging
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.llm.asking import Generate, Question
from cxr.llm.messages import server_messages
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.replies import NoAnswer, Reply, first_sentence, read_reply

REFUSED_STATUSES = (400, 413, 422)
"""HTTP statuses that concern a single question: it is malformed or too long, or its schema is not supported."""
CUT_REPLY_ERRORS = {"RemoteProtocolError", "ReadError", "DecodingError"}
"""Error classes of the HTTP library for a truncated or undecodable reply."""
_NETWORKS = (
    "127.0.0.0/8 0.0.0.0/32 ::1/128 ::/128 "  # this machine
    "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 "  # RFC 1918, RFC 4193
    "100.64.0.0/10 169.254.0.0/16 fe80::/10"  # RFC 6598, RFC 3927, RFC 4291
)
PRIVATE_NETWORKS = tuple(map(ip_network, _NETWORKS.split()))  # networks that routers do not forward to the Internet


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return a function that asks the server. Raises UserError if it does not answer, lacks the model, or is outside
    the private network although this is not allowed."""
    import openai

    key, address = execution.server_key, execution.server
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)  # these log a line per request
    http_client = None
    if not execution.remote_ok:
        refuse_remote(key, address, execution.remote_key)
        # no proxy from the environment and no redirects, so that nothing is sent elsewhere; the SSL context reads
        # SSL_CERT_FILE, which a client with trust_env=False ignores
        context = ssl.create_default_context()
        http_client = openai.DefaultHttpxClient(trust_env=False, follow_redirects=False, verify=context)
    api_key = os.environ.get("OPENAI_API_KEY") or "none"
    limits = {"timeout": execution.timeout_s, "max_retries": 5}
    client = openai.OpenAI(base_url=address, api_key=api_key, http_client=http_client, **limits)
    _check_model(client, options, key, address)

    def ask_one(question: Question, attempt: int) -> Reply:
        temperature, seed = options.sampling(attempt, question.seed)
        # newer servers ignore the old guided_* keys and answer without constraint
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        form = openai.omit if question.schema is None else {"type": "json_schema", "json_schema": schema}
        messages, how = server_messages(question.messages), {"model": options.model, "max_tokens": options.max_tokens}
        how |= {"temperature": temperature, "seed": seed, "response_format": form}
        try:
            raw = client.chat.completions.with_raw_response.create(messages=messages, **how)
        except openai.APIStatusError as error:
            if error.status_code not in REFUSED_STATUSES:
                raise
            return NoAnswer(f"the server refuses the question ({_status(error)})")
        except openai.APIConnectionError as error:
            if type(error.__cause__).__name__ not in CUT_REPLY_ERRORS:
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
                raise _user_error(key, address, error) from None

    return generate


def _check_model(client, options: ModelOptions, key: str, address: str) -> None:
    import openai

    try:
        body = client.models.with_raw_response.list().http_response.text
    except openai.OpenAIError as error:
        raise _user_error(key, address, error) from None
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
            f"choose one of {', '.join(served) or 'none'}, or serve the model"
        )


def _status(error) -> str:
    sentence = first_sentence(error.response.text)
    return f"{error.status_code}: {sentence}" if sentence else str(error.status_code)


def _user_error(key: str, address: str, error: Exception) -> UserError:
    import openai

    section = key.rpartition(".")[0]
    problem = f"does not answer ({type(error).__name__}): start the server, or correct the address"
    if isinstance(error, openai.APITimeoutError):
        problem = f"does not answer in time: lower {section}.requests, or see the server's log"
    elif isinstance(error, openai.APIStatusError):
        status, code = _status(error), error.status_code
        path_problem = f"does not know the requested path ({status}): correct the address, which usually ends in /v1"
        key_problem = f"refuses the key in OPENAI_API_KEY ({status}): export the right key"
        problem = {
            401: key_problem, 403: key_problem, 404: path_problem,
            429: f"has too many requests ({status}): lower {section}.requests, or wait",
        }.get(code, f"answers with status {status}: correct the address")  # fmt: skip
        if code >= 500:
            problem = f"fails ({status}): see the server's log, then rerun"
    return UserError(f"{key}: {address} {problem}")


def refuse_remote(key: str, address: str, allow: str) -> None:
    """Raise UserError unless the host of the URL ``address`` has only private IP addresses. The message names two
    settings: ``key`` contains the address, and ``allow`` permits servers outside the private network."""
    host = urlsplit(address).hostname or ""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)} if host else set()
    except (OSError, UnicodeError):
        addresses = set()
    if not addresses:
        raise UserError(f"{key}: {address} does not answer (no such host): start the server, or correct the address")
    if not all(map(is_private, addresses)):
        raise UserError(
            f"{key}: {address} is outside this machine and its private network, so patients' texts and images are not "
            f"sent there: choose a server inside, or set {allow} to true if that server may receive them"
        )


def is_private(number: str) -> bool:
    """Return whether an IP address belongs to this machine or to a private network."""
    ip = ip_address(number)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip in network for network in PRIVATE_NETWORKS)

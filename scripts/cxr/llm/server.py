"""Asking a running OpenAI-compatible server (``vllm serve`` and others) instead of a model inside the job."""

import logging
import os
import ssl
from concurrent.futures import ThreadPoolExecutor

from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.llm.asking import Generate, Question
from cxr.llm.messages import for_server
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.remote import refuse_remote


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

    def one(question: Question, attempt: int) -> str:
        temperature, seed = options.sampling(attempt, question.seed)
        # response_format, not the old guided_* keys: a server that no longer knows those answers unconstrained
        schema = {"name": "answer", "schema": question.schema, "strict": True}
        form = openai.omit if question.schema is None else {"type": "json_schema", "json_schema": schema}
        try:
            answer = client.chat.completions.create(
                model=options.model,
                messages=for_server(question.messages),
                temperature=temperature,
                seed=seed,
                max_tokens=options.max_tokens,
                response_format=form,
            )
        except openai.BadRequestError:
            return ""  # this question is at fault: "" is not JSON, so it is asked again and then quarantined
        return answer.choices[0].message.content or ""

    def generate(questions: list[Question], attempt: int) -> list[str]:
        with ThreadPoolExecutor(execution.requests) as pool:
            texts = pool.map(lambda question: one(question, attempt), questions)
            try:
                return list(progress(texts, len(questions), "answers"))
            except openai.OpenAIError as error:
                pool.shutdown(cancel_futures=True)
                raise _unreachable(key, address, error) from None

    return generate


def _direct():
    """Return a client that sends nothing elsewhere: it uses no proxy of the environment and follows no redirect."""
    import openai

    # the context honours SSL_CERT_FILE, which a client without its environment ignores
    return openai.DefaultHttpxClient(trust_env=False, follow_redirects=False, verify=ssl.create_default_context())


def _check_model(client, options: ModelOptions, key: str, address: str) -> None:
    import openai

    try:
        served = [model.id for model in client.models.list()]
    except openai.OpenAIError as error:
        raise _unreachable(key, address, error) from None
    if options.model not in served:
        raise UserError(
            f"{options.key}.model: the server at {address} has no {options.model!r}: "
            f"choose one of {', '.join(served) or 'none'}, or serve it"
        )


def _unreachable(key: str, address: str, error: Exception) -> UserError:
    return UserError(f"{key}: {address} does not answer ({type(error).__name__}): start it, or correct the address")

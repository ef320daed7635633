"""A language model for the tests: answers the prompts as the rules engine would, in process or as an HTTP server.

It reads what it is sent and nothing else: the numbered sentences, the place and entity of a prompt, the schema.
"""

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field

from cxr.base.vocabulary import PERSONAS
from cxr.ils.paraphrase import rules as wordings_of_rules
from cxr.ils.templates import parse_instruction
from cxr.language.reports import engine
from http_server import Quiet, running

MODEL = "tests/answers-as-the-rules-do"


@dataclass(frozen=True)
class EngineOptions:
    effusion_without_side: str = "both_bases"
    files: dict = field(default_factory=dict)


RULES = engine.load_engine("rules", EngineOptions())


def figure9(item: dict) -> dict:
    """Return a tuple of ours as Figure 9 has it."""
    keys = ("entity", "sentence_index", "presence", "certainty", "location")
    return {key: item[key] for key in keys} | {"predicted_lesion_type": " or ".join(item["candidates"]) or None}


def answer(messages: list[dict], schema: dict) -> str:
    """Answer one chat request as the model would."""
    user = messages[-1]["content"]
    if "findings" in schema["properties"]:
        sentences = re.findall(r"^\d+\. (.*)$", user, flags=re.M)
        return json.dumps({"findings": [figure9(item) for item in RULES(sentences)]})
    if "rounds" in schema["properties"]:
        return json.dumps({"rounds": [{"question": f"What of {at}?", "answer": f"It is {at}."} for at in range(6)]})
    if "wordings" in schema["properties"]:
        return json.dumps({"wordings": wordings(user)})
    location, entity = re.fullmatch(r"Location: (.*)\nEntity: (.*)", user).groups()
    place = "" if location == "no specific location information" else f" in the {location}"
    read = RULES([f"There is {entity}{place}."])
    if "category" in schema["properties"]:
        return json.dumps({"category": (read[0]["category"] if read else None) or "none"})
    return json.dumps({"categories": read[0]["labels"] if read else []})


def wordings(user: str) -> list[str]:
    """Word an instruction as the engine rules does, for the persona that the prompt describes."""
    told = dict(re.findall(r"^([\w ]+): (.*)$", user, flags=re.M))
    persona = next(name for name in PERSONAS if name.replace("_", " ").lower() in told["Persona"].lower())
    return wordings_of_rules.list_wordings(parse_instruction(told["Original"]), persona)[
        : int(told["Number of wordings"])
    ]


@contextmanager
def serving(respond=answer, model: str = MODEL):
    """Serve ``respond(messages, schema)`` at an OpenAI-compatible address; yields (address, requests seen).

    ``respond`` gives the text of the answer, or an int for an HTTP error of that status.
    """
    seen: list[dict] = []

    class Handler(Quiet):
        def do_GET(self):
            self._send(
                200, {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": ""}]}
            )

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(request)
            form = request.get("response_format") or {"json_schema": {"schema": None}}
            said = respond(request["messages"], form["json_schema"]["schema"])
            if isinstance(said, int):
                self._send(said, {"error": {"message": "refused", "type": "invalid_request_error"}})
                return
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send(200, {"id": "1", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]})

        def _send(self, status: int, body: dict):
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with running(Handler) as address:
        yield f"{address}/v1", seen

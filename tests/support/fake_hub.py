"""A Hugging Face hub on this machine: serves files of tiny repositories as the real one does, over HTTP."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from http_server import Quiet, running


@contextmanager
def serve(repositories: dict[str, dict[str, bytes]], gated: tuple[str, ...] = ()) -> Iterator[str]:
    """Serve {repository: {file: content}} and yield the address for HF_ENDPOINT; ``gated`` ones are refused."""

    class Handler(Quiet):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            owner, name, *rest = self.path.strip("/").split("/")
            repository, revision = f"{owner}/{name}", "".join(rest[1:2])
            content = repositories.get(repository, {}).get("/".join(rest[2:]))
            if repository in gated:
                return self._refuse(401, "GatedRepo")
            if repository not in repositories:
                return self._refuse(401, "RepoNotFound")
            if content is None:
                return self._refuse(404, "EntryNotFound")
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", revision)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)
            return None

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with running(Handler) as address:
        yield address

"""A server that answers as the API of llama.cpp's is documented, with ascending tokens."""

from __future__ import annotations

import json

from pytest_meshnet.tests.serving import Quiet


class Handler(Quiet):
    """Answers /completion with ascending tokens, at most `most` at a time."""

    asked: list[dict] = []  # noqa: RUF012
    most = 100

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        self.answer(self.completion(body))

    def completion(self, body):
        """The document that answers a request."""
        first = len(body["prompt"])
        told = [
            {"id": n, "logprob": -0.25,
             "top_logprobs": [{"id": n, "logprob": -0.25}, {"id": 0, "logprob": -3.0}]}
            for n in range(first, first + min(self.most, body["n_predict"]))
        ]  # fmt: skip
        return {
            "completion_probabilities": told,
            "timings": {"prompt_ms": 2.0, "predicted_ms": 8.0},
        }

    def answer(self, document):
        """Send a document as JSON."""
        self.send(json.dumps(document).encode())

    def send(self, data: bytes) -> None:
        """Send an answer of status 200."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

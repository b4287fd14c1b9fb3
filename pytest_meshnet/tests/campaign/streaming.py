"""A server of one answer: bytes as a test writes them, and what was asked."""

from contextlib import contextmanager

from pytest_meshnet.tests.serving import Quiet, serving


@contextmanager
def answering(body, status=200, kind="text/event-stream"):
    """Serve one body for every request; yields (origin, the requests' bodies)."""
    asked = []

    class Handler(Quiet):
        def do_POST(self):
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer()

        def do_GET(self):
            asked.append(self.path)
            self._answer()

        def _answer(self):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as origin:
        yield origin, asked

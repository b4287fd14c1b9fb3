"""A server of one answer: bytes as a test writes them, and what was asked."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    server_bind = TCPServer.server_bind


@contextmanager
def answering(body, status=200, kind="text/event-stream"):
    """Serve one body for every request; yields (origin, the requests' bodies)."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
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

        def log_message(self, *_):
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

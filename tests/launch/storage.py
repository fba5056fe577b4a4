"""As much of Cloud Storage's JSON interface as TensorStore uses, in memory."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class Server(ThreadingHTTPServer):
    """`objects` holds contents by bucket and name."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[tuple[str, str], bytes] = {}
        self.generation = 1
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format, *args) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:  # noqa: N802
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        _, _, _, _, bucket, _, *name = parts.path.split("/", 6)
        if not name:
            prefix = query.get("prefix", [""])[0]
            found = [
                n
                for b, n in sorted(self.server.objects)
                if (b, n.startswith(prefix)) == (bucket, True)
            ]
            self.answer(200, json.dumps({"items": [{"name": n} for n in found]}).encode())
            return
        data = self.server.objects.get((bucket, unquote(name[0])))
        self.answer(404 if data is None else 200, data or b"")

    def do_POST(self) -> None:  # noqa: N802
        parts = urlsplit(self.path)
        name = parse_qs(parts.query)["name"][0]
        bucket = parts.path.split("/")[5]
        self.server.objects[bucket, name] = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.generation += 1
        about = {"name": name, "bucket": bucket, "generation": str(self.server.generation)}
        self.answer(200, json.dumps(about).encode())

    def answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.send_header("x-goog-generation", str(self.server.generation))
        self.end_headers()
        self.wfile.write(data)

"""Chromium's own EventSource as a reader: streams in, the events that a page saw out.

A loopback server hands the page, each stream in the pieces asked for, and takes the results.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CHROMIUM = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-dev-shm-usage", "--no-proxy-server",
)  # fmt: skip
PATIENCE = 100.0  # seconds for everything
PAUSE = 0.002  # seconds between two pieces, so that they have a chance to be two reads
PAGE = b"""<!doctype html><meta charset="utf-8"><script>
// A stream that ends is an error to an EventSource, and it would connect again: close it first.
const read = (number, types) => new Promise(resolve => {
  const source = new EventSource("/stream/" + number), events = [];
  for (const type of types)
    source.addEventListener(type, e => events.push([e.data, e.type, e.lastEventId]));
  source.onerror = () => { source.close(); resolve(events); };
});
const work = async () => {
  const {streams, types} = await (await fetch("/work")).json();
  const results = [];
  let next = 0;
  const worker = async () => {
    while (next < streams) { const number = next++; results[number] = await read(number, types); }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);  // a browser opens six to a host
  await fetch("/results", {method: "POST", body: JSON.stringify(results)});
};
work().catch(e => fetch("/results", {method: "POST", body: JSON.stringify(String(e))}));
</script>"""

Seen = tuple[str, str, str]  # data, type, last id


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, streams: Sequence[Sequence[bytes]], types: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.streams, self.types = streams, types
        self.served: list[int] = []
        self.results: queue.Queue[object] = queue.Queue()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path.startswith("/stream/"):
            self._stream(int(self.path.removeprefix("/stream/")))
        elif self.path == "/work":
            work = {"streams": len(self.server.streams), "types": self.server.types}
            self._answer("application/json", [json.dumps(work).encode()])
        elif self.path == "/":
            self._answer("text/html; charset=utf-8", [PAGE])
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer("text/plain", [])
        self.server.results.put(json.loads(body))

    def _stream(self, number: int) -> None:
        self.server.served.append(number)
        self._answer("text/event-stream", self.server.streams[number])

    def _answer(self, content_type: str, pieces: Sequence[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        for number, piece in enumerate(pieces):
            if number:
                time.sleep(PAUSE)
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _chromium(url: str, profile: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (profile / "output").open("wb") as output:
        process = subprocess.Popen(
            [*CHROMIUM, f"--user-data-dir={profile / 'profile'}", url],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the group is its own: it and its children
        process.wait()


def read(
    streams: Sequence[Sequence[bytes]], types: Sequence[str], scratch: Path
) -> list[list[Seen]]:
    """What an EventSource dispatched for each stream (given in pieces), of the named types."""
    server = _Server(streams, types)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        with _chromium(f"http://127.0.0.1:{server.server_port}/", scratch):
            results = server.results.get(timeout=PATIENCE)
    except queue.Empty:
        output = (scratch / "output").read_text(errors="replace")[-2000:]
        raise AssertionError(
            f"chromium told nothing in {PATIENCE} s; {len(server.served)} of {len(streams)} "
            f"streams were served; it said: {output}"
        ) from None
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert isinstance(results, list), results
    assert sorted(server.served) == list(range(len(streams))), "a stream was read more than once"
    return [[(data, type_, last_id) for data, type_, last_id in events] for events in results]

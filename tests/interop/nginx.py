"""Debian's nginx as it stands in front of many model servers: a process of ours, by its id."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

START = 30.0  # seconds
# Debian keeps it where only root looks.
COMMAND = shutil.which("nginx") or "/usr/sbin/nginx"
# Where Debian's build would write outside of the prefix.
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
CONFIGURATION = """\
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    {folders}
    {servers}
}}
"""
SERVER = """\
    server {{
        listen 127.0.0.1:{port} reuseport;
        location / {{
            proxy_pass {upstream};
            {lines}
        }}
    }}
"""


@contextmanager
def nginx(folder: Path, upstream: str, locations: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Name → root URL, of one port for each of `locations`, whose values are nginx's directives."""
    with ExitStack() as held:
        ports = {name: held.enter_context(_held_port()) for name in locations}
        yield from _started(folder, upstream, locations, ports)


def _started(
    folder: Path, upstream: str, locations: Mapping[str, str], ports: Mapping[str, int]
) -> Iterator[dict[str, str]]:
    servers = [
        SERVER.format(port=ports[name], upstream=upstream, lines=lines)
        for name, lines in locations.items()
    ]
    temporary = "\n    ".join(f"{name}_temp_path {name};" for name in FOLDERS)
    text = CONFIGURATION.format(folders=temporary, servers="".join(servers))
    (folder / "nginx.conf").write_text(text)
    command = [COMMAND, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    with (folder / "stderr.txt").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            for port in ports.values():
                _wait_for(port, server, folder / "stderr.txt")
            yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        finally:
            server.terminate()
            try:
                server.wait(10)
            finally:
                server.kill()


@contextmanager
def _held_port() -> Iterator[int]:
    """Free for who asks for it by name as we do, and for nobody who asks for any."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"nginx does not listen on {port}:\n{log.read_text(errors='replace')}")

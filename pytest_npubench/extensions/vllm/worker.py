"""The child's side of process.VllmProcess: `python -m pytest_npubench.extensions.vllm.worker {}`.

One engine; its owner calls the methods of Worker by name (processes/owner.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_npubench.errors import ConfigError, NpubenchError
from pytest_npubench.extensions.vllm.answer import VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.buckets import DeclaredBuckets, declared_in_config
from pytest_npubench.extensions.vllm.canaries import TorchCanaries
from pytest_npubench.extensions.vllm.engine import VllmEngine
from pytest_npubench.extensions.vllm.serving_run import serve
from pytest_npubench.extensions.vllm.settings import EngineSettings
from pytest_npubench.processes.owner import Owner

# Distinct experts of each iteration, counted behind the routers of the model that vLLM runs.
#
# A forward hook on every `*.mlp.gate` sees the router logits of all rows that went through the layer, prefill and
# decode together: their union is what the layer loads (Layered Prefill, section 3.1). A layer that runs twice in an
# iteration, for different rows, counts the union of both. Hooks do not survive compilation, so the engine has to be
# eager; in eager mode vLLM pads no rows.
#
# Worked example: top-2 of rows that choose {1, 2}, {2, 5} and {2, 1} are experts 1, 2 and 5: three.
GATE = ".mlp.gate"


class ExpertCounter:
    """Counts on one engine from now on. Raises ConfigError where the engine compiles, or its routers are not found."""

    def __init__(self, engine: VllmEngine) -> None:
        if not engine.settings.eager:
            raise ConfigError("experts are counted by forward hooks, which compiled models skip; want eager=True")
        self.experts_per_token = int(getattr(engine.model_config, "num_experts_per_tok", None) or 0)
        self._chosen: dict[str, Any] = {}  # layer: which experts were chosen, [E] of bool on the device
        self.num_layers = engine.apply_model(self._install) if self.experts_per_token else 0
        if self.experts_per_token and not self.num_layers:
            raise ConfigError(f"{engine.settings.model}: chooses experts, but has no module named *{GATE}")

    def take(self) -> tuple[int, ...]:
        """Distinct experts of each layer that ran since it was last asked; empty in a dense model."""
        if not self._chosen:
            return ()
        import torch

        counts: list[int] = torch.stack(list(self._chosen.values())).sum(-1).tolist()
        self._chosen.clear()
        return tuple(counts)

    def take_sum(self) -> int:
        """Returns the same count summed over layers: the expert activations of an iteration."""
        return sum(self.take())

    def _install(self, model: Any) -> int:
        gates = [(name, module) for name, module in model.named_modules() if name.endswith(GATE)]
        for name, module in gates:
            module.register_forward_hook(self._hook(name))
        return len(gates)

    def _hook(self, layer: str) -> Any:
        def count(module: Any, inputs: Any, output: Any) -> None:
            logits = output[0] if isinstance(output, tuple) else output  # [T, E]
            chosen = logits.topk(self.experts_per_token, dim=-1).indices.flatten()
            if layer not in self._chosen:
                self._chosen[layer] = logits.new_zeros(logits.shape[-1]).bool()
            self._chosen[layer][chosen] = True

        return count


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
        """Returns the sets of lengths in the configuration that is in force."""
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

"""Distinct experts that the rows of each router call go to, summed: what an iteration loads of the experts' weights.

A router gives logits (n, experts); a row goes to its top k. Worked example: two rows with top 2 {0, 3} and {3, 5} are
3 activations, whether they decode or prefill (Layered Prefill, section 3.1). Bytes are activations times the bytes of
one expert.

This one lives in the worker, so that a server in other processes can be asked by collective_rpc; an engine in our own
process has extensions/vllm/worker.py. The top k of the logits are what softmax routing without groups picks:
Qwen-MoE, Mixtral, OLMoE.
"""

from __future__ import annotations

from typing import Any

ROUTER = ".gate"


class RouterCounter:
    """Counts behind the routers of one model, from attach() on. In the process that holds the model."""

    def __init__(self, experts_per_token: int) -> None:
        self.experts_per_token = experts_per_token
        self.num_routers = 0
        self.num_calls = 0
        self.num_activations = 0

    def attach(self, model: Any) -> None:
        """A forward hook on every router of a torch module. A dense model has none, and the count stays 0."""
        routers = [module for name, module in model.named_modules() if name.endswith(ROUTER)]
        self.num_routers = len(routers)
        for router in routers:
            router.register_forward_hook(self._count)

    def _count(self, module: Any, arguments: Any, output: Any) -> None:
        logits = output[0] if isinstance(output, tuple) else output
        self.num_calls += 1
        self.num_activations += int(logits.topk(self.experts_per_token, dim=-1).indices.unique().numel())

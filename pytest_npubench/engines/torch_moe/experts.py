"""Feed-forward layer with experts: the router chooses, only chosen experts' weights are read (arXiv 1701.06538).

Tokens are sorted by expert, so that each active expert multiplies one run of rows: once by its gate and up projection,
once by its down projection. On CUDA in bf16 one grouped product does that for all experts.

Counting: a layer loads the distinct experts over all its rows, prefill and decode together (Layered Prefill, section
3.1). Example: rows choosing {1, 2}, {2, 5} and {2, 1} load experts 1, 2 and 5: three.

Shapes: T tokens, E experts, k chosen by each token, I their width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_npubench.engines.shapes import SWIGLU_ALPHA, SWIGLU_LIMIT, DecoderShape
from pytest_npubench.engines.torch_moe.packing import kernel_rows, product
from pytest_npubench.engines.torch_moe.weights import LayerWeights, Matrices

FUSING_MAJORS = (9, 10)  # of compute capability


def route(shape: DecoderShape, weights: LayerWeights, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Experts [T, k] of each token of hidden [T, hidden] and their shares [T, k], which sum to 1.

    Softmax over the chosen logits (gpt-oss) is softmax over all of them, renormalised over the chosen (Qwen3).
    """
    assert weights.router is not None
    logits = F.linear(hidden, weights.router, weights.router_bias)
    chosen, experts = logits.topk(shape.experts_per_token, dim=-1)
    return experts, chosen.softmax(-1, dtype=torch.float32).to(hidden.dtype)


def distinct_experts(experts: Tensor, num_experts: int) -> Tensor:
    """Returns the number of distinct experts in each layer of experts [layers, T, k], summed, as [1] on the device."""
    hit = torch.zeros((len(experts), num_experts), dtype=torch.int64, device=experts.device)
    return hit.scatter_(1, experts.flatten(1), 1).sum().view(1)


def activate(shape: DecoderShape, gate_up: Tensor) -> Tensor:
    """SwiGLU (arXiv 2002.05202) of [..., 2I] to [..., I]; gpt-oss clamps both halves and adds one to the linear one."""
    gate, up = gate_up.chunk(2, -1)
    if shape.architecture == "llama":
        return F.silu(gate) * up
    gate, up = gate.clamp(max=SWIGLU_LIMIT), up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
    return (up + 1) * gate * torch.sigmoid(SWIGLU_ALPHA * gate)


def dense_feed_forward(shape: DecoderShape, weights: LayerWeights, hidden: Tensor) -> Tensor:
    """Returns the one block of a dense decoder; hidden [T, hidden]."""
    return product(activate(shape, product(hidden, weights.gate_up[0])), weights.down[0])


def mix_experts(shape: DecoderShape, weights: LayerWeights, hidden: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
    """hidden [T, hidden] through each token's experts, weighed by their shares."""
    flat = experts.flatten()
    order = flat.argsort()
    by_expert = flat[order]
    groups = _groups(by_expert, shape.num_experts, weights.gate_up)
    gate_up = groups.product(hidden[order // shape.experts_per_token], weights.gate_up)
    if weights.gate_up_bias is not None:
        gate_up += weights.gate_up_bias[by_expert]
    outputs = groups.product(activate(shape, gate_up), weights.down)
    if weights.down_bias is not None:
        outputs += weights.down_bias[by_expert]
    # back to the tokens' order, in which a sum does not depend on what else is in the batch
    by_token = torch.empty_like(outputs)
    by_token[order] = outputs
    return torch.bmm(shares[:, None], by_token.view(*experts.shape, -1)).squeeze(1)


class Groups(Protocol):
    """Rows sorted by expert; product() takes [rows, in] and E matrices [out, in] to [rows, out]."""

    def product(self, rows: Tensor, matrices: Matrices) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LoopedGroups:
    """The active experts and how many rows each has: one product an expert.

    With a packed matrix the product takes some rows of its neighbours along, and leaves out what comes of them.
    """

    experts: list[int]
    sizes: list[int]

    def product(self, rows: Tensor, matrices: Matrices) -> Tensor:
        multiplied, start = [], 0
        for expert, size in zip(self.experts, self.sizes, strict=True):
            num_rows = min(len(rows), kernel_rows(size, matrices[expert]))
            first = min(start, len(rows) - num_rows)
            together = product(rows[first : first + num_rows], matrices[expert])
            multiplied.append(together[start - first : start - first + size])
            start += size
        return torch.cat(multiplied)


@dataclass(frozen=True, slots=True)
class FusedGroups:
    """The end of each expert's rows, [E] on the device: one kernel serves all, and nothing comes back to the host."""

    ends: Tensor

    def product(self, rows: Tensor, matrices: Matrices) -> Tensor:
        assert isinstance(matrices, Tensor)  # packed ones are a CPU's
        functional: Any = F  # older torch has no grouped_mm, and fuses() has asked
        multiplied: Tensor = functional.grouped_mm(rows, matrices.transpose(1, 2), offs=self.ends)
        return multiplied


def _groups(by_expert: Tensor, num_experts: int, matrices: Matrices) -> Groups:
    if fuses(matrices):
        experts = torch.arange(num_experts, device=by_expert.device)
        return FusedGroups(torch.searchsorted(by_expert, experts, right=True, out_int32=True))
    active, sizes = torch.unique_consecutive(by_expert, return_counts=True)
    return LoopedGroups(active.tolist(), sizes.tolist())


def fuses(matrices: Matrices) -> bool:
    """Whether grouped_mm is one kernel: for bf16 on Hopper and on Blackwell's 10.x.

    Elsewhere (GroupedBlas.cpp, `_grouped_mm_cuda`) it copies `offs` to the host and multiplies group after group, those
    without a row too: 12,288 products an iteration of qwen3-30b-a3b.
    """
    return (
        not isinstance(matrices, tuple)
        and matrices.is_cuda
        and matrices.dtype == torch.bfloat16
        and hasattr(F, "grouped_mm")
        and torch.cuda.get_device_capability(matrices.device)[0] in FUSING_MAJORS
    )

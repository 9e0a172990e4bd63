"""How near the torch engine comes to what its device can do: decode and prefill beside their rooflines.

    python benchmarks/moe_engine.py --shape small-moe
    python benchmarks/moe_engine.py --device cuda --shape qwen3-30b-a3b --dtype bf16 --decode 1,32 --prefill 512,8192

Bandwidth and operations a second are measured first, by a matrix-vector and a matrix-matrix product. An iteration's
bound is the larger of bytes over bandwidth and operations over operations a second; the ratio is bound over measured.
Bytes: the experts that were active, all other weights once, and the context's keys and values.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.engines.torch_moe import TorchExecutor
from pytest_npubench.engines.torch_moe.decode_graphs import CudaCapture
from pytest_npubench.engines.torch_moe.device import torch_dtype
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, LayerPass, PrefillRow

CUDA_BLOCK_SIZE = 256  # FlashAttention 2 reads such blocks in place, as graphs of decode batches want
NUM_WARMUP = 3
NUM_REPEATS = 9
MATRIX_ROWS = {"cpu": 2048, "cuda": 8192}
READ_ROWS = {"cpu": 16_384, "cuda": 65_536}
READ_COLUMNS = 8192


def main() -> None:
    arguments = _parser().parse_args()
    shape, dtype = decoder_shape(arguments.shape), torch_dtype(arguments.dtype)
    context = arguments.context or (1024 if arguments.device.startswith("cuda") else 128)
    bytes_per_s, flops_per_s = _device_limits(arguments.device, dtype)
    print(f"{shape.name} in {arguments.dtype} on {arguments.device}, {torch.get_num_threads()} threads")
    print(f"measured: reads {bytes_per_s / 1e9:.1f} GB/s, products {flops_per_s / 1e9:,.0f} GFLOP/s")
    longest = max(arguments.prefill)
    capacity = max(
        max(arguments.decode) * (context + NUM_WARMUP + NUM_REPEATS + CUDA_BLOCK_SIZE), longest + CUDA_BLOCK_SIZE
    )
    on_cuda = arguments.device.startswith("cuda")
    executor = TorchExecutor(
        shape,
        device=arguments.device,
        dtype=arguments.dtype,
        kv_capacity_tokens=capacity,
        block_size_tokens=CUDA_BLOCK_SIZE if on_cuda else 16,
        make_capture=CudaCapture if on_cuda else None,
    )
    limits = bytes_per_s, flops_per_s, dtype.itemsize
    print(f"\ndecode at a context of {context} tokens\n{'batch':>6} {HEADINGS}")
    for batch in arguments.decode:
        _report(batch, batch, batch * context, *_decode(executor, batch, context), shape, limits)
    print(f"\nprefill of one prompt\n{'tokens':>6} {HEADINGS}")
    for num_tokens in arguments.prefill:
        _report(num_tokens, num_tokens, num_tokens, *_prefill(executor, num_tokens), shape, limits)


HEADINGS = f"{'ms':>9} {'token/s':>9} {'GB read':>8} {'coverage':>8} {'bound ms':>9} {'ratio':>6}"


def _decode(executor: TorchExecutor, batch: int, context: int) -> tuple[float, IterationOutcome]:
    """Median seconds of one decode iteration, and the last one's outcome."""
    layers, requests = LayerGroup(0, executor.num_layers), tuple(range(batch))
    for request in requests:
        executor.begin(request, context, NUM_WARMUP + NUM_REPEATS + 1)
        row = PrefillRow(request, 0, context)
        executor.run(IterationPlan(passes=(LayerPass(layers, (row,)),), finishing=(request,)))
    plan = IterationPlan(decode=requests, passes=(LayerPass(layers),))
    timed = [_timed(lambda: executor.run(plan)) for _ in range(NUM_WARMUP + NUM_REPEATS)]
    for request in requests:
        executor.end(request)
    return statistics.median(seconds for seconds, _ in timed[NUM_WARMUP:]), timed[-1][1]


def _prefill(executor: TorchExecutor, num_tokens: int) -> tuple[float, IterationOutcome]:
    """Median seconds of a prompt in one iteration, a different prompt each time."""
    layers, timed = LayerGroup(0, executor.num_layers), []
    for request in range(NUM_WARMUP + NUM_REPEATS):
        executor.begin(request, num_tokens, 1)
        rows = (PrefillRow(request, 0, num_tokens),)
        plan = IterationPlan(passes=(LayerPass(layers, rows),), finishing=(request,))
        timed.append(_timed(lambda plan=plan: executor.run(plan)))
        executor.end(request)
    return statistics.median(seconds for seconds, _ in timed[NUM_WARMUP:]), timed[-1][1]


def _timed(call: Callable[[], IterationOutcome]) -> tuple[float, IterationOutcome]:
    started_s = time.perf_counter()
    outcome = call()
    return time.perf_counter() - started_s, outcome


def _report(
    label: int,
    num_tokens: int,
    num_context: int,
    seconds: float,
    outcome: IterationOutcome,
    shape: DecoderShape,
    limits: tuple[float, float, int],
) -> None:
    bytes_per_s, flops_per_s, dtype_bytes = limits
    others = shape.num_layers * shape.shared_parameters_per_layer + shape.vocab_size * shape.hidden
    num_bytes = outcome.expert_load_bytes + others * dtype_bytes + num_context * shape.kv_bytes_per_token(dtype_bytes)
    # the head multiplies one row of a prompt; one FLOP in a thousand either way
    bound_s = max(num_bytes / bytes_per_s, 2 * shape.num_active_parameters * num_tokens / flops_per_s)
    coverage = outcome.expert_activations / shape.num_layers / shape.num_experts
    print(
        f"{label:>6} {seconds * 1e3:9.2f} {num_tokens / seconds:9,.0f} {num_bytes / 1e9:8.3f} {coverage:8.1%} "
        f"{bound_s * 1e3:9.2f} {bound_s / seconds:6.2f}"
    )


def _device_limits(device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Bytes a second that a matrix-vector product reads, and operations a second of a square product: the best runs."""
    kind = device.partition(":")[0]
    rows = MATRIX_ROWS[kind]
    matrix = torch.ones((READ_ROWS[kind], READ_COLUMNS), device=device, dtype=dtype)
    vector = torch.ones(READ_COLUMNS, device=device, dtype=dtype)
    square = torch.ones((rows, rows), device=device, dtype=dtype)
    read_s = _best_s(lambda: matrix @ vector, device)
    return matrix.nbytes / read_s, 2 * rows**3 / _best_s(lambda: square @ square, device)


def _best_s(call: Callable[[], torch.Tensor], device: str) -> float:
    times_s = []
    for _ in range(NUM_WARMUP + NUM_REPEATS):
        started_s = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s[NUM_WARMUP:])


def _parser() -> argparse.ArgumentParser:
    def sizes(text: str) -> tuple[int, ...]:
        return tuple(int(size) for size in text.split(","))

    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--shape", default="small-moe", help="a name from engines/shapes.py")
    parser.add_argument("--dtype", default="fp32", help="fp32, bf16 or fp16")
    parser.add_argument("--decode", type=sizes, default=(1, 4, 16, 32), help="batch sizes, as 1,4,16")
    parser.add_argument("--prefill", type=sizes, default=(32, 64, 128, 512), help="prompt lengths, as 32,512")
    parser.add_argument("--context", type=int, help="tokens that decode rows look back on; 128 on a CPU, else 1024")
    return parser


if __name__ == "__main__":
    main()

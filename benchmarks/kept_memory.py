"""What an allocator that keeps freed memory is worth to the reference engine on a processor.

    python benchmarks/kept_memory.py [SHAPE]

A prefill through one layer after the other, of several batch sizes in turn, in a process with it and one without it;
NUM_PAIRS such pairs. Milliseconds are medians over layers and repeats; pages are those that an iteration maps.
"""

import json
import resource
import subprocess
import sys
import time
from statistics import fmean, median

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.engines.torch_moe import executor as engine
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow

BATCHES = ([64], [512], [1000], [1300] * 2, [1300] * 3, [2600, 1300, 1000, 1500, 1520])
NUM_REPEATS, NUM_PAIRS = 6, 3


def measure(name: str, *, keeps: bool) -> dict[str, tuple[float, float]]:
    """Milliseconds and pages of an iteration, by the tokens of its batch."""
    if not keeps:
        engine.keep_freed_memory = lambda: None  # type: ignore[attr-defined]
    shape = decoder_shape(name)
    executor = engine.TorchExecutor(shape, kv_capacity_tokens=16_384)
    found: dict[str, list[tuple[float, float]]] = {str(sum(batch)): [] for batch in BATCHES}
    for repeat in range(NUM_REPEATS):
        for batch in BATCHES:
            rows = tuple(PrefillRow(request, 0, number) for request, number in enumerate(batch))
            for request, _, number in rows:
                executor.begin(request, number, 1)
            for layer in range(shape.num_layers):
                finishing = tuple(range(len(rows))) if layer == shape.num_layers - 1 else ()
                plan = IterationPlan(passes=(LayerPass(LayerGroup(layer, layer + 1), rows),), finishing=finishing)
                pages, started_s = _pages(), time.perf_counter()
                executor.run(plan)
                if repeat:  # the first grows the heap
                    found[str(sum(batch))].append((1e3 * (time.perf_counter() - started_s), _pages() - pages))
            for request, _, _ in rows:
                executor.end(request)
    return {tokens: (median(ms for ms, _ in own), fmean(pages for _, pages in own)) for tokens, own in found.items()}


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main(name: str) -> None:
    print(f"{name}: tokens: ms kept (pages) / ms as it comes (pages)")
    for _ in range(NUM_PAIRS):
        with_, without = (
            json.loads(subprocess.run([sys.executable, __file__, name, how], capture_output=True, check=True).stdout)
            for how in ("kept", "plain")
        )
        for tokens, (ms, pages) in with_.items():
            plain_ms, plain_pages = without[tokens]
            both = f"{ms:7.2f} ({pages:6,.0f}) / {plain_ms:7.2f} ({plain_pages:7,.0f})"
            print(f"{tokens:>6}: {both} = x{ms / plain_ms:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], keeps=sys.argv[2] == "kept")))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "small-moe")

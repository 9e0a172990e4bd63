"""The reference decoder compiled for a TPU that is not there: this checkout's binaries beside another one's.

    pip install libtpu
    python benchmarks/decoder_compile.py OTHER_CHECKOUT [v5e:2x2 [SHAPE STEP BUCKET BATCH]]

Every binary is compiled in a process of its own; nothing runs. Cycles are the compiler's own estimates added up: it
gives none for collectives, for kernels (a prompt's attention) and for fetches into on-chip memory, so a ratio of
prefills is a hint and one of decode steps is not far from it. Clocks: v5e 1.5 GHz, v6e 1.75 GHz.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

POINTS = (
    ("llama-3.2-1b", "decode", 2048, 8),
    ("llama-3.2-1b", "decode", 4096, 8),
    ("llama-3.2-1b", "decode", 8192, 32),
    ("llama-3.2-1b", "prefill", 512, 8),
    ("llama-3.2-1b", "prefill", 2048, 8),
    ("llama-3.2-1b", "prefill", 4096, 8),
)
ENVIRONMENT = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}
CHILD = r"""
import json, math, re, resource, sys
from functools import partial
import jax, numpy as np
from jax.experimental import topologies
from jax.sharding import PartitionSpec as P
from pytest_npubench.engines.jax_dense import engine as engine_module
from pytest_npubench.engines.shapes import decoder_shape

topology, name, step, bucket, batch_size = json.loads(sys.argv[1])
shape = decoder_shape(name)

class Compiler:
    devices = list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    compiles = [None]
    def compile(self, name, function, *arguments, donate=(), out=None):
        if name.startswith(step):
            lowered = jax.jit(function, donate_argnums=donate, out_shardings=out).lower(*arguments)
            self.binary = lowered.compile()

class Engine(engine_module.StaticBucketEngine):
    def _make_weights(self):
        make = partial(engine_module.random_weights, self.shape, dtype=self._dtype)
        specs = engine_module.weight_specs(self.shape)
        shardings = jax.tree.map(self._sharding, specs, is_leaf=lambda node: isinstance(node, P))
        as_shape = lambda array, sharding: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
        return jax.tree.map(as_shape, jax.eval_shape(make, np.uint32(0)), shardings)

compiler = Compiler()
engine = Engine(shape, compiler, buckets=(bucket,), batch_size=batch_size, dtype="bf16")
engine.load((bucket,))
text, memory = compiler.binary.as_text(), compiler.binary.memory_analysis()
if "while(" in text:
    sys.exit("the module holds a loop, whose body this sum counts once")
num_elements = batch_size * shape.num_kv_heads // len(compiler.devices) * bucket * shape.head_dim
copied = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", text)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "cycles": sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text[text.index("ENTRY"):]))),
    "cache_copies": sum(math.prod(map(int, dims.split(","))) == num_elements for dims in copied),
    "code_bytes": memory.generated_code_size_in_bytes,
    "temp_bytes": memory.temp_size_in_bytes,
    "alias_bytes": memory.alias_size_in_bytes,
    "cpu_s": used.ru_utime + used.ru_stime,
}))
"""


def compile_in(root: Path, topology: str, point: tuple[str, str, int, int]) -> dict[str, float]:
    """The binary's figures; cpu_s is the whole process's, imports included."""
    environment = os.environ | ENVIRONMENT
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", CHILD, json.dumps([topology, *point])]
    child = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(child.stderr[-2000:])
    return json.loads(child.stdout.splitlines()[-1])


def main(other: Path, topology: str, points: tuple[tuple[str, str, int, int], ...]) -> None:
    for point in points:
        mine, theirs = (compile_in(root, topology, point) for root in (Path(__file__).parents[1], other))
        print(*point, topology)
        for figure, value in mine.items():
            ratio = f"x{value / theirs[figure]:.3f}" if theirs[figure] else ""
            print(f"  {figure:13} {value:14,.0f} {theirs[figure]:14,.0f} {ratio}", flush=True)


if __name__ == "__main__":
    other, topology, *point = sys.argv[1], *(sys.argv[2:] or ["v5e:2x2"])
    chosen = ((point[0], point[1], int(point[2]), int(point[3])),) if point else POINTS
    main(Path(other).resolve(), topology, chosen)

"""How the decoder's two steps are written for a device's compiler: what they compute is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
from jax.sharding import Mesh

from pytest_npubench.engines.jax_dense.layers import attend_causal, scatter_rows, write_rows

Operation = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
LAYERS_A_SUM = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphForm:
    """write_step: (cache, new, lengths) as layers.write_rows(). attend_prompt: (q, k, v) as layers.attend_causal().
    layers_a_sum: a prefill's hidden states are summed and kept after so many layers; 0: as the compiler likes.
    keeps_gated: a prefill's feed-forward block is two kernels, as layers.feed_forward()."""

    write_step: Operation
    attend_prompt: Operation
    layers_a_sum: int = 0
    keeps_gated: bool = False


PORTABLE = GraphForm(write_step=scatter_rows, attend_prompt=attend_causal)


def graph_form(platform: str, mesh: Mesh) -> GraphForm:
    """The form for a jax platform ("cpu", "gpu", "tpu"), whose devices are the mesh.

    TPU: a scatter makes the compiler copy the whole cache into another layout and back, so rows are written one by one;
    unrolled blocks of attention are most of a prefill's program, so jax's own kernel takes their place; what every
    layer adds to the hidden states is kept to the prefill's end and summed again for later layers, so the sum is taken
    every few layers; a prompt's products with `up` and `down` become one kernel that takes more cycles than two.
    Elsewhere a scatter writes in place, and is one kernel a layer on a GPU where row updates would be one a row. Layers
    are unrolled everywhere: a scan takes a decode step 1.9 times the cycles there
    (docs/measurements/2026-11-25-compilers.md).
    """
    if platform != "tpu":
        return PORTABLE
    if not hasattr(jax, "shard_map"):  # before 0.7.2 the kernel takes no heads of 64, and this is missing
        attend: Operation = attend_causal
    else:
        from pytest_npubench.engines.jax_dense.splash_attention import attend_splash

        attend = partial(attend_splash, mesh)
    return GraphForm(write_step=write_rows, attend_prompt=attend, layers_a_sum=LAYERS_A_SUM, keeps_gated=True)

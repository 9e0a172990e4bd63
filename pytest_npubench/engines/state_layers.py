"""Layers that mix tokens through a state of fixed size in the place of keys and values: state-space models, linear
attention, short convolutions. Each function gives fields of a LayerShape.

A request keeps the state and the last tokens of a convolution, as many as its kernel is long (transformers' cache;
vLLM keeps one fewer). A token multiplies every value of the state three times: to let it fade, to add to it, to read
it. The delta rule reads it once more.

Worked numbers: a linear layer of Qwen3-Next-80B-A3B has 32 heads with states of 128 x 128 values and a convolution of 4
tokens of 8,192: 557,056 values a request. A token makes 4 x 524,288 multiplications with them. With states of 4 bytes
and the rest of 2 the model's 36 such layers keep 77.9 MB.
"""

from __future__ import annotations

from pytest_npubench.engines.decoder_layers import Mixer


def state_space(
    *,
    hidden: int,
    num_heads: int,
    head_dim: int,
    state: int,
    num_groups: int,
    kernel: int,
    conv_bias: bool,
    input_bias: bool,
    output_bias: bool,
    has_norm: bool,
) -> Mixer:
    """Mamba-2 (arXiv 2405.21060, section 7): a state of `state` values for each value of each head."""
    inner = num_heads * head_dim
    convolved = inner + 2 * num_groups * state
    projected = inner + convolved + num_heads
    biases = conv_bias * convolved + input_bias * projected + output_bias * hidden
    return _mixer(
        matrices=hidden * (projected + inner),
        small=convolved * kernel + biases + 3 * num_heads + has_norm * inner,
        state=inner * state,
        uses=3,
        tail=convolved * kernel,
        mixed=2 * (convolved + inner),
    )


def selective_state_space(
    *, hidden: int, inner: int, state: int, rank: int, kernel: int, conv_bias: bool, has_bias: bool, has_norms: bool
) -> Mixer:
    """Mamba (arXiv 2312.00752, section 3.4). rank: of the time step's projection. has_norms: of step, input and output,
    which Jamba has."""
    narrow = rank + 2 * state
    matrices = 3 * hidden * inner + inner * narrow + rank * inner
    small = inner * (kernel + conv_bias + 2 + state) + has_bias * (2 * inner + hidden) + has_norms * narrow
    return _mixer(
        matrices=matrices, small=small, state=inner * state, uses=3, tail=inner * kernel, mixed=4 * inner + narrow
    )


def delta_rule(
    *, hidden: int, num_key_heads: int, num_value_heads: int, key_dim: int, value_dim: int, kernel: int
) -> Mixer:
    """Gated DeltaNet (arXiv 2412.06464, section 3): a state of key_dim x value_dim for each head of the values."""
    keys, values = num_key_heads * key_dim, num_value_heads * value_dim
    convolved = 2 * keys + values
    return _mixer(
        matrices=hidden * (convolved + values + 2 * num_value_heads) + values * hidden,
        small=convolved * kernel + 2 * num_value_heads + value_dim,
        state=values * key_dim,
        uses=4,
        tail=convolved * kernel,
        mixed=2 * (convolved + values),
    )


def channel_delta_rule(*, hidden: int, num_heads: int, head_dim: int, kernel: int) -> Mixer:
    """Kimi Delta Attention (arXiv 2510.26692, section 3): the state of each head fades by channel, through projections
    of rank head_dim, as the output's gate has."""
    width = num_heads * head_dim
    return _mixer(
        matrices=hidden * (3 * width + num_heads) + 2 * head_dim * (hidden + width) + width * hidden,
        small=3 * width * kernel + width + num_heads + head_dim,
        state=width * head_dim,
        uses=4,
        tail=3 * width * kernel,
        mixed=8 * width,
    )


def lightning_attention(*, hidden: int, num_heads: int, head_dim: int) -> Mixer:
    """Linear attention with a fixed decay and a gate of its output (MiniMax-01, arXiv 2501.08313, section 2.2)."""
    width = num_heads * head_dim
    return _mixer(matrices=5 * hidden * width, small=width, state=width * head_dim, uses=3, tail=0, mixed=5 * width)


def short_convolution(*, hidden: int, kernel: int, has_bias: bool) -> Mixer:
    """A gated convolution over the last tokens (LFM2): no state but these."""
    small = hidden * kernel + has_bias * 5 * hidden
    return _mixer(matrices=4 * hidden * hidden, small=small, state=0, uses=0, tail=hidden * kernel, mixed=6 * hidden)


def _mixer(*, matrices: int, small: int, state: int, uses: int, tail: int, mixed: int) -> Mixer:
    """tail: values of the last tokens."""
    return {
        "attention_parameters": matrices,
        "small_parameters": small,
        "kv_values": 0,
        "pair_products": 0,
        "cached_products": 0,
        "mixed_values": mixed,
        "state_values": state + tail,
        "float32_values": state,
        "state_products": uses * state,
    }


def both(attention: Mixer, state: Mixer) -> Mixer:
    """Attention and a state side by side in one layer (Falcon-H1)."""
    return (
        attention
        | state
        | Mixer(
            attention_parameters=attention["attention_parameters"] + state["attention_parameters"],
            small_parameters=attention["small_parameters"] + state["small_parameters"],
            mixed_values=attention["mixed_values"] + state["mixed_values"],
            kv_values=attention["kv_values"],
            pair_products=attention["pair_products"],
            cached_products=attention["cached_products"],
        )
    )

"""One layer of a decoder whose layers differ, as counts: weights, what a token leaves in the cache, what a pair costs,
what a request keeps however long it is.

Worked numbers: a layer of DeepSeek-V3 keeps 512 + 64 values a token (its compressed keys and values with the rotated
part of the keys) where 128 heads of keys and values would be 40,960; a decode row multiplies each with 128 queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """attention_parameters: matrices of attention, or of what mixes tokens in its place. dense_parameters: matrices of
    the feed-forward part that every token multiplies, a dense block or shared experts. router_parameters: of the choice
    of experts, which a layer has where has_experts says so. small_parameters: norms, biases and convolutions.

    kv_values: values of a cached token that attention reads; a token leaves them, unless shares_kv says that an earlier
    layer did. pair_products: multiplications and additions of a query with a key, over all heads, in a prompt;
    cached_products: of a decode row with a cached token. window: of tokens that a query sees; None: all. index_values
    and index_products: of an index over all tokens, which chooses those that the window holds.

    state_values: what a request keeps whatever its length, of which float32_values have 4 bytes each; state_products:
    of a token with it. mixed_values: of a token, between the kernels that mix tokens."""

    attention_parameters: int
    dense_parameters: int
    small_parameters: int
    kv_values: int
    pair_products: int
    cached_products: int
    mixed_values: int
    router_parameters: int = 0
    has_experts: bool = False
    window: int | None = None
    shares_kv: bool = False
    index_values: int = 0
    index_products: int = 0
    state_values: int = 0
    float32_values: int = 0
    state_products: int = 0

    @property
    def shared_parameters(self) -> int:
        """Of the matrices that every token multiplies."""
        return self.attention_parameters + self.dense_parameters + self.router_parameters

    @property
    def cached_values(self) -> int:
        """What a token leaves in the cache."""
        return (0 if self.shares_kv else self.kv_values) + self.index_values

    @property
    def num_blocks(self) -> int:
        """Attention, or what stands in its place, and a feed-forward part; some layers are one of both."""
        return bool(self.attention_parameters) + (bool(self.dense_parameters) or self.has_experts)

    def state_bytes(self, dtype_bytes: float) -> float:
        """What a request keeps in this layer whatever its length."""
        return (self.state_values - self.float32_values) * dtype_bytes + 4 * self.float32_values


class Mixer(TypedDict, total=False):
    """Fields of a layer that its way of mixing tokens says."""

    attention_parameters: int
    small_parameters: int
    kv_values: int
    pair_products: int
    cached_products: int
    mixed_values: int
    index_values: int
    index_products: int
    shares_kv: bool
    state_values: int
    float32_values: int
    state_products: int


NO_MIXER = Mixer(
    attention_parameters=0, small_parameters=0, kv_values=0, pair_products=0, cached_products=0, mixed_values=0
)


def latent_attention(
    *, hidden: int, num_heads: int, query_rank: int | None, kv_rank: int, nope: int, rope: int, value: int
) -> Mixer:
    """Attention over compressed keys and values (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1): fields of a layer,
    its norms among them. nope, rope, value: of a head's keys without and with rotation, and of its values. A decode row
    multiplies the compressed values themselves (equations 18 and 19's absorbed projections)."""
    queries = num_heads * (nope + rope)
    of_queries = hidden * queries if query_rank is None else query_rank * (hidden + queries)
    of_keys = hidden * (kv_rank + rope) + kv_rank * num_heads * (nope + value)
    return {
        "attention_parameters": of_queries + of_keys + num_heads * value * hidden,
        "small_parameters": (query_rank or 0) + kv_rank,
        "kv_values": kv_rank + rope,
        "pair_products": num_heads * (nope + rope + value),
        "cached_products": num_heads * (2 * kv_rank + rope),
        "mixed_values": 2 * (num_heads + 1) * value,
    }


def with_index(mixer: Mixer, *, hidden: int, query_rank: int | None, num_heads: int, head_dim: int) -> Mixer:
    """Attention to the tokens that an index chooses, whose one key a token is kept beside the cache. Its queries come
    from the compressed ones, and heads are weighed (DeepSeek Sparse Attention: DeepSeek-V3.2, section 2.1); without a
    rank they come from the hidden state, and are not (MiniMax M3)."""
    of_queries = (query_rank or hidden) * num_heads * head_dim + (0 if query_rank is None else hidden * num_heads)
    return mixer | Mixer(
        attention_parameters=mixer["attention_parameters"] + of_queries + hidden * head_dim,
        small_parameters=mixer["small_parameters"] + 2 * head_dim,
        index_values=head_dim,
        index_products=num_heads * head_dim,
    )


def grouped_attention(
    *, hidden: int, num_heads: int, num_kv_heads: int, head_dim: int, value_dim: int | None = None
) -> Mixer:
    """Attention whose query heads share key-value heads in groups: fields of a layer. value_dim: of a head's values,
    where they are not as long as its keys."""
    widths = head_dim + (head_dim if value_dim is None else value_dim)
    return {
        "attention_parameters": hidden * widths * (num_heads + num_kv_heads),
        "small_parameters": 0,
        "kv_values": num_kv_heads * widths,
        "pair_products": num_heads * widths,
        "cached_products": num_heads * widths,
        "mixed_values": (num_heads + num_kv_heads) * widths,
    }

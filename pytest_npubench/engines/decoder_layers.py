"""One layer of a decoder whose layers differ, as counts: weights, what a token leaves in the cache, what a pair costs.

Worked numbers: a layer of DeepSeek-V3 keeps 512 + 64 values a token (its compressed keys and values with the rotated
part of the keys) where 128 heads of keys and values would be 40,960; a decode row multiplies each with 128 queries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """attention_parameters: matrices of attention. dense_parameters: matrices of the feed-forward part that every token
    multiplies, a dense block or shared experts. router_parameters: of the choice of experts, which a layer has where
    has_experts says so. small_parameters: norms and biases.

    kv_values: values that a token leaves in the cache. pair_products: multiplications and additions of a query with a
    key, over all heads, in a prompt; cached_products: of a decode row with a cached token. window: of tokens that a
    query sees; None: all."""

    attention_parameters: int
    dense_parameters: int
    small_parameters: int
    kv_values: int
    pair_products: int
    cached_products: int
    router_parameters: int = 0
    has_experts: bool = False
    window: int | None = None

    @property
    def shared_parameters(self) -> int:
        """Of the matrices that every token multiplies."""
        return self.attention_parameters + self.dense_parameters + self.router_parameters


def latent_attention(
    *, hidden: int, num_heads: int, query_rank: int | None, kv_rank: int, nope: int, rope: int, value: int
) -> dict[str, int]:
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
    }


def grouped_attention(*, hidden: int, num_heads: int, num_kv_heads: int, head_dim: int) -> dict[str, int]:
    """Attention whose query heads share key-value heads in groups: fields of a layer."""
    products = 2 * num_heads * head_dim
    return {
        "attention_parameters": 2 * hidden * head_dim * (num_heads + num_kv_heads),
        "kv_values": 2 * num_kv_heads * head_dim,
        "pair_products": products,
        "cached_products": products,
    }

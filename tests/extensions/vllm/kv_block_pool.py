"""In vLLM's environment: our shared blocks beside vLLM's own KV cache manager, through the same random life.

python kv_block_pool.py SEEDS   prints, as JSON, how many requests found something, and the first place where the two
differ in what a prompt finds or in whether there is room for it (null: nowhere).
"""

from __future__ import annotations

import json
import random
import sys
from itertools import islice
from typing import Any

BLOCK = 4


def life(seed: int, new_manager: Any, new_request: Any) -> tuple[int, list[object] | None]:
    from pytest_npubench.extensions.planning.virtual.shared_blocks import BlockNames, SharedBlocks
    from pytest_npubench.serving.request import PromptContent, ServingRequest

    rng = random.Random(seed)
    num_blocks = rng.randint(4, 24)
    theirs, ours = new_manager(num_blocks), SharedBlocks(num_blocks=num_blocks, block_size_tokens=BLOCK)
    names, live, num_hits = BlockNames(BLOCK), [], 0
    for index in range(40):
        if live and rng.random() < 0.45:
            request, wanted, full = live.pop(rng.randrange(len(live)))
            theirs.free(request)
            ours.give_back(wanted, full)
            continue
        prompt = [token for token in rng.choices((0, 1), k=rng.randint(1, 6)) for _ in range(rng.choice((3, 4)))]
        asked, one = (
            new_request(str(index), prompt),
            ServingRequest(
                id=index,
                arrival_s=0.0,
                prompt_tokens=len(prompt),
                output_tokens=4,
                content=PromptContent(tuple(prompt)),
            ),
        )
        blocks, hit, *_ = theirs.get_computed_blocks(asked)
        found = ours.find(islice(names.of(one), (len(prompt) - 1) // BLOCK))
        wanted = -(-len(prompt) // BLOCK)
        has_room = ours.num_new(wanted, found) <= ours.num_free
        given = theirs.allocate_slots(asked, len(prompt) - hit, hit, blocks)
        if (hit, given is not None) != (len(found) * BLOCK, has_room):
            return num_hits, [seed, index, hit, len(found) * BLOCK, given is not None, has_room]
        num_hits += hit > 0
        if has_room:
            ours.hold(found)
            ours.take(wanted - len(found))
            filled = ours.fill(islice(names.of(one, len(found)), len(prompt) // BLOCK - len(found)))
            live.append((asked, wanted, found + filled))
    return num_hits, None


def main() -> None:
    import torch
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK, sha256)
    kind = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)

    def new_manager(num_blocks: int) -> Any:
        groups = [KVCacheGroupSpec(["layer"], kind)]
        # one block of vLLM's is never given out
        config = KVCacheConfig(num_blocks=num_blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups)
        return KVCacheManager(
            config, max_model_len=512, scheduler_block_size=BLOCK, hash_block_size=BLOCK, enable_caching=True
        )

    def new_request(name: str, prompt: list[int]) -> Any:
        return Request(name, prompt, SamplingParams(max_tokens=4), None, block_hasher=hasher)

    lives = [life(seed, new_manager, new_request) for seed in range(int(sys.argv[1]))]
    different = next((place for _, place in lives if place), None)
    answer = {"num_hits": sum(hits for hits, _ in lives), "different": different}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()

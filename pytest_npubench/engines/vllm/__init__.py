"""vLLM as an engine: token ids in, the time of every token out, in a process of its own.

    version             which vLLM is installed, and whether this version of ours knows it; imports nothing of it
    platform            which devices the installed build serves, and the marker that goes with them
    model_directory     config.json and seeded random safetensors of a named shape: no network, no tokenizer
    settings            our policies as vLLM's settings, printable; what vLLM cannot do is refused with the reason
    engine              the in-process LLMEngine
    serving_run         open-loop arrivals on the wall clock
    expert_hooks        distinct experts of each iteration, counted behind the routers
    process, worker     an engine in a child process, in this interpreter or in one of another environment
    bucket_engine       engines.protocol.Engine for the bucket suite
    canaries            the canary kernels in torch, in the same child

vllm and torch are imported in the child alone, once it has read its settings.
"""

"""Layered prefill inside stock vLLM: a scheduler class and a worker class of ours, given by their dotted paths.

    settings            tokens_per_iteration, merge cap, chunk -> vLLM's engine arguments and command line
    refusals            what must hold for the tokens to be right; anything else is refused at the start
    flight              which prompts are on their way, and the layer group they run through next
    scheduler           LayeredScheduler: vLLM's V1 scheduler that holds prompts back and rolls them back between stages
    rows                which rows of a batch are on their way, and which run through all layers
    stage_pass          one stage: all rows through its layer group, the others through the rest
    rest_attention      attention metadata of the rows that are not on their way
    runner              the model runner that runs a stage
    worker, cpu, gpu    the worker that builds that runner
    router_counter      distinct experts behind each router call

Nothing of vLLM is patched: every class here is a subclass. settings, refusals, flight and rows import neither vLLM nor
torch. docs/vllm.md tells how to start it.
"""

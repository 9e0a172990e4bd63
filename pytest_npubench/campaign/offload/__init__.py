"""The offload suite as campaigns: llm.npu's techniques on a pair of units, each experiment with a pair of its own."""

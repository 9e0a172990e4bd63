"""The experiments of the offload suite, one file each (llm.npu, arXiv 2407.05858, and its reviews)."""

"""What offloading to a static unit takes: chunks, outliers, order (llm.npu)."""

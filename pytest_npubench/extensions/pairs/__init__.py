"""Two compute units that share one model: HeteroInfer's splits of operators and llm.npu's techniques of offloading."""

"""llm.npu's three techniques, each alone (arXiv 2407.05858).

Chunk-sharing graphs, shadow outliers, out-of-order subgraphs: `chunk_graphs`, `shadow`, `out_of_order`.
"""

"""Operators split over two compute units (HeteroInfer)."""

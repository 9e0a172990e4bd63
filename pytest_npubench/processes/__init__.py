"""Processes of our own: how one starts, how it learns that its owner is gone, how the owner learns that it is."""

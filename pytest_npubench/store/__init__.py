"""What stays on disk: who measured (fingerprint), what was measured (journal), what was accepted (baselines).

docs/formats.md describes both file formats and their history.
"""

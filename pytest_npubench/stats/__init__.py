"""Statistics as pure functions: numbers in, numbers out."""

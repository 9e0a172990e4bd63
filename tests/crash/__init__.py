"""Kill -9 at random moments and at chosen places of a run; docs/crash-safety.md says what has to hold after it."""

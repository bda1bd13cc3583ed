"""Training: a pure step over a frozen state, and a run as a stream of events."""

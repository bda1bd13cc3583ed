"""Training: losses, optimizers, training steps, complete runs with `fit`, and observers of the events of a run."""

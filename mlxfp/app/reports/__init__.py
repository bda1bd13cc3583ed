"""HTML reports of runs and of training logs, and comparisons of several runs."""

"""Several models made into one run: chosen by what the data are, trained on the same folds within a time, and blended."""

"""Several models made into one run: chosen by what the data are and trained within a time, or the same one with several seeds."""

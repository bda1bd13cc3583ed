"""Reports for the eyes: a page in HTML of every run, of logs of training, and comparisons of several runs."""

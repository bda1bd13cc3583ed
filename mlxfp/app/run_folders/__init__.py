"""The layout and the files of the folders of runs, which runs write and reports read."""

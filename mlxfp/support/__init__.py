"""Helpers without knowledge of datasets or models: argument checks, error texts, files, settings, HTML, terminal text."""

"""Helpers that know no dataset and no model: argument checks, error texts, files, settings, HTML, terminal text."""

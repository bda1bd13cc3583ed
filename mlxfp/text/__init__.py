"""Text: rows become sentences, sentences become tokens."""

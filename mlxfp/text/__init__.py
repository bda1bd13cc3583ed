"""Text processing: templates write rows as sentences, tokenizers convert text to token ids."""

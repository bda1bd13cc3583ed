"""What is read in the JSON of a tokenizer."""

import json as jsons

from mlxfp.text.tokenizers.configuration import read_configuration
from tests.text.configurations import listed, sequence, splitter, with_parts


def test_sequences_are_written_out_and_parts_may_be_absent():
    inner = sequence([splitter("Digits"), splitter("Punctuation")], "pretokenizers")
    nested = sequence([splitter("Whitespace"), inner], "pretokenizers") if inner is not None else None
    found = read_configuration(with_parts(listed(), pre_tokenizer=nested).json)
    assert [part["type"] for part in found.splitters] == ["Whitespace", "Digits", "Punctuation"]
    assert (found.normalizers, found.processor, found.added_tokens) == ([], {}, [])


def test_the_roles_that_model_and_post_processor_name():
    processor = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
    data = {"model": {"type": "Unigram", "vocab": [["<s>", 0.0], ["?", 0.0]], "unk_id": 1}, "post_processor": processor}
    assert read_configuration(jsons.dumps(data)).roles == {"unk": "?", "cls": "<s>", "sep": "</s>"}
    assert read_configuration(jsons.dumps({"model": {"type": "BPE", "vocab": {}, "unk_token": None}})).roles == {}

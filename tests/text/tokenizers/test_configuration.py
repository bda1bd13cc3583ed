"""What is read in the JSON of a tokenizer."""

import json as jsons

import pytest

from mlxfp.text.tokenizers.configuration import KINDS, read_configuration
from tests.text.configurations import known, listed, marked, sequence, splitter, with_parts

KNOWN = known()


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("words", "listed-gpt2", "listed-gpt4"), "WordLevel"),
        (("bert", "bert-cased"), "WordPiece"),
        (("gpt2", "roberta", "llama3", "starcoder"), "byte-level"),
        (("llama2", "mistral", "gemma"), "BPE of SentencePiece"),
        (("unigram", "t5", "deberta3", "xlmr"), "Unigram"),
    ],
)
def test_tokenizers_that_people_use_have_a_kind(names: tuple[str, ...], kind: str):
    for name in names:
        found = read_configuration(KNOWN[name].json).kind
        assert found is not None
        assert found.name == kind


def test_every_kind_is_that_of_a_tokenizer():
    assert {kind.name for kind in KINDS} == {kind.name for name in KNOWN if (kind := read_configuration(KNOWN[name].json).kind)}


def test_a_vocabulary_without_marks_or_prefixes_has_no_kind():
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    assert read_configuration(jsons.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}})).kind is None


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


def test_only_merges_within_words_divide_a_text_at_its_marks():
    kind = next(kind for kind in KINDS if kind.name == "BPE of SentencePiece")
    model = marked(fused=True, by_bytes=False)["model"]
    assert kind.divides(model)
    assert not kind.divides({**model, "vocab": {**model["vocab"], "a▁b": 9999}})
    assert not kind.divides({**model, "ignore_merges": True})
    assert not any(other.divides(model) for other in KINDS if other is not kind)

"""Which tokenizers are cut, and which are not."""

import pytest
from attrs import evolve

from mlxfp.text.encoding.boundaries import PATTERNS
from mlxfp.text.encoding.boundary_rules import find_rule
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from tests.text.configurations import MARKS, PRECOMPILED, PREPEND, STRIPS, known, listed, marked, replaced, sequence, splitter, with_parts

KNOWN = known()


@pytest.mark.parametrize("name", list(KNOWN))
def test_tokenizers_that_people_use_are_cut(name: str):
    assert find_rule(KNOWN[name].json) is not None


def _split(*parts: object, normalizer: object = None) -> Tokenizer:
    return with_parts(listed(), pre_tokenizer=sequence(list(parts), "pretokenizers"), normalizer=normalizer)


_MERGED = marked(fused=True, by_bytes=False)
_CROSSED = {**_MERGED, "model": {**_MERGED["model"], "vocab": {**_MERGED["model"]["vocab"], "a▁b": 9999}}}


@pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(_split(), id="no pre-tokenizer"),
        pytest.param(_split(splitter("Digits"), splitter("Punctuation")), id="nothing that splits at spaces"),
        pytest.param(_split(splitter("UnicodeScripts")), id="a pre-tokenizer that is not known"),
        pytest.param(_split(splitter("Whitespace"), splitter("UnicodeScripts")), id="a second one that is not known"),
        pytest.param(_split(splitter("Split", pattern={"Regex": r"\w+"})), id="a pattern that is not known"),
        pytest.param(
            _split(splitter("Split", pattern={"Regex": next(iter(PATTERNS))}, behavior="Removed")), id="a pattern that is removed"
        ),
        pytest.param(_split(splitter("Whitespace"), splitter("Metaspace", prepend_scheme="first")), id="a mark for the first word only"),
        pytest.param(_split(splitter("ByteLevel", use_regex=False)), id="bytes that are not split"),
        pytest.param(_split(splitter("Metaspace", split=False)), id="marks that do not split, and words"),
        pytest.param(_split(splitter("Whitespace"), normalizer=replaced({"String": "a b"}, "c")), id="a normalizer that joins words"),
        pytest.param(_split(splitter("Whitespace"), normalizer=replaced({"Regex": "a"}, "c")), id="a normalizer's pattern"),
        pytest.param(_split(splitter("Whitespace"), normalizer=PRECOMPILED), id="graphemes, and punctuation apart"),
        pytest.param(_split(splitter("Metaspace"), normalizer=STRIPS[2]), id="texts stripped on the left only"),
        pytest.param(_split(splitter("Metaspace"), normalizer=PREPEND), id="a mark more than the pre-tokenizer's"),
        pytest.param(with_parts(_CROSSED), id="merges over a mark"),
        pytest.param(with_parts({**_MERGED, "model": {**_MERGED["model"], "ignore_merges": True}}), id="whole texts in the vocabulary"),
        pytest.param(with_parts(_MERGED, normalizer=None), id="merges over spaces"),
        pytest.param(with_parts(_MERGED, normalizer=sequence([MARKS, PREPEND], "normalizers")), id="normalizers in another order"),
    ],
)
def test_what_is_not_known_is_left_whole(tokenizer: Tokenizer):
    assert find_rule(tokenizer.json) is None


def test_files_that_leave_out_what_is_the_default_are_read_as_the_package_reads_them():
    short = with_parts(listed(), pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True})
    rule, full = find_rule(short.json), find_rule(with_parts(listed(), pre_tokenizer=splitter("ByteLevel")).json)
    assert rule is not None
    assert full is not None
    assert rule.cuts == full.cuts


def test_the_table_has_four_bits_for_each_side_of_a_cut():
    rule = find_rule(KNOWN["bert"].json)
    assert rule is not None
    table = evolve(rule.cuts, pairs=((b"a", b" "), (b"b", b"a"))).table
    assert {chr(byte): bits for byte, bits in enumerate(table) if bits} == {"a": 1 | 2 << 4, "b": 2, " ": 1 << 4}

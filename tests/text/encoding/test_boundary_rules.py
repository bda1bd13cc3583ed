"""Which words make a rule give their row up."""

import pyarrow as pa
import pytest

from mlxfp.text.encoding.boundary_rules import HINTED, WHOLE, find_rule
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from tests.text.configurations import known, listed, splitter, with_parts

KNOWN = known()
_SWITCHES = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


def flags_of(tokenizer: Tokenizer, words: list[str]) -> list[int]:
    rule = find_rule(tokenizer.json)
    assert rule is not None
    flags: list[int] = rule.flags(pa.array(words, pa.string())).tolist()
    return flags


def _with_token(content: str, **switches: bool) -> Tokenizer:
    token = {"id": 900, "content": content, **_SWITCHES, **switches}
    return with_parts(listed(), normalizer={"type": "Lowercase"}, pre_tokenizer=splitter("WhitespaceSplit"), added_tokens=[token])


@pytest.mark.parametrize(
    ("name", "held", "fine"),
    [
        ("bert", [], ["a\u3000", "\u0301", "漢", "\u200b", "a\x00"]),
        ("gpt2", ["a\u3000", " \u00a0", "a\x85", "\u200b", "a\x00"], [" ", "\n ", " a", "漢", "\u0301", "a\u3000b"]),
        ("unigram", ["a\u00a0", "\u2003"], [" ", " ½", "¨", "  a"]),
        ("t5", [" \u3000a", "a\u200b", "x\u0600y", "\u0600", "▁", "  \x85a"], [" a", "  a", "½", " ", " ﬁ"]),
        ("llama2", [" ", "a▁", "▁"], [" a", "a", "▁a"]),
    ],
)
def test_words_at_whose_ends_there_is_white_space_are_held(name: str, held: list[str], fine: list[str]):
    assert flags_of(KNOWN[name], [*held, *fine]) == [WHOLE] * len(held) + [0] * len(fine)


def test_a_token_that_no_cut_divides_needs_no_care():
    assert flags_of(_with_token("[END]"), ["[END]", " x[END]y"]) == [0, 0]
    assert flags_of(_with_token("[END]", lstrip=True), [" [END]"]) == [0]


def test_a_token_that_looks_around_has_its_rows_looked_at():
    for switches in ({"single_word": True}, {"rstrip": True}):
        assert flags_of(_with_token("END", **switches), ["END", "xENDy", "EN", "end"]) == [HINTED, HINTED, 0, 0]


def test_a_token_with_a_space_has_its_longest_part_looked_for():
    assert flags_of(_with_token("New York"), ["New", " York", " Yorkshire", "NewYork"]) == [0, HINTED, HINTED, 0]


def test_a_token_of_normalized_text_is_seen_in_normalized_words():
    assert flags_of(_with_token("New York", normalized=True), ["NEW", "anew", "newer", " york"]) == [WHOLE, WHOLE, 0, 0]
    assert flags_of(_with_token("END", normalized=True, rstrip=True), ["the", "eND", " bending"]) == [0, WHOLE, WHOLE]


def test_a_token_that_may_be_anywhere_leaves_nothing_to_cut():
    for content in ("\u0301", "\u0301a"):
        token = {"id": 900, "content": content, **_SWITCHES, "normalized": True}
        tokenizer = with_parts(listed(), normalizer={"type": "NFC"}, pre_tokenizer=splitter("Whitespace"), added_tokens=[token])
        assert find_rule(tokenizer.json) is None


def test_special_tokens_of_gpt_and_bert_are_looked_for_by_their_names():
    rules = {name: find_rule(KNOWN[name].json) for name in ("bert", "gpt2")}
    assert {name: rule and rule.hinted for name, rule in rules.items()} == dict.fromkeys(rules, "CLS|MASK|PAD|SEP|UNK")


@pytest.mark.parametrize("content", ["x\\z", "\\x{41}", "a.b", "\\", "(", "a\nb", "\\Z x"])
def test_a_token_may_have_any_letters(content: str):
    holding = [content, f" {content}", f"x{content}"]
    others = ["q", "xz", "b\n", "aXb", "41"]
    assert flags_of(_with_token(content, rstrip=True), [*holding, "A", *others]) == [HINTED] * 3 + [0] * (len(others) + 1)
    late = _with_token(content, normalized=True, single_word=True)
    assert flags_of(late, [*holding, content.upper(), *others]) == [WHOLE] * 4 + [0] * len(others)

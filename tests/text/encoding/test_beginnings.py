"""Words that are encoded as one text have the ids that each has alone, and characters that may be in them are harmless."""

import json as jsons
import re
import unicodedata
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from mlxfp.text.encoding import memo
from mlxfp.text.encoding.batch_calls import find_caller
from mlxfp.text.encoding.beginnings import LETTERS, WORD
from mlxfp.text.encoding.boundary_rules import find_rule, found
from mlxfp.text.encoding.memo import Memo
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from tests.text.configurations import known, listed, plain_tokenizers, sequence, splitter, tokenizers, with_parts

KNOWN = known()
_CLASS = re.compile("[" + re.sub(r"\\x\{(\w+)\}", lambda match: re.escape(chr(int(match[1], 16))), LETTERS) + "]")
ALL = [chr(number) for number in range(0x600) if _CLASS.match(chr(number))]

WORDS = st.lists(
    st.builds(lambda letters: f" {letters}", st.text(st.sampled_from(ALL) | st.sampled_from("abcdeinotrs"), min_size=1, max_size=7))
    | st.text("ab é中'.", min_size=1, max_size=4)
    | st.sampled_from([" the", " in", " nowhere", "in", " New", " York", " Ġthe", " xĠ"]),
    unique=True,
    min_size=1,
    max_size=20,
)


def assert_found(tokenizer: Tokenizer, words: list[str]) -> int:
    """Hold what a memo finds to the tokenizer, and return how many words were joined."""
    rule = find_rule(tokenizer.json)
    if rule is None:
        return 0
    own = Memo(find_caller(engine(tokenizer.json)), rule)
    with patch.object(memo, "_JOINED", 1):
        entries = own.find(pa.array(words, pa.string()), float("inf"))
    flags = rule.flags(pa.array(words, pa.string()))
    for place, word in enumerate(words):
        ids = entries.ids[entries.starts[place] :][: entries.lengths[place]].tolist()
        assert ids == tokenizer.encode(*rule.bare([word]), special=False), word
    assert entries.flags.tolist() == flags.tolist()
    return int(rule.joined(pa.array(words, pa.string()), flags).sum()) if own._joins else 0


@pytest.mark.parametrize("name", KNOWN)
@given(words=WORDS)
def test_joined_words_have_the_ids_that_each_has_alone(name: str, words: list[str]):
    assert_found(KNOWN[name], words)


@given(tokenizer=tokenizers() | plain_tokenizers(), words=WORDS)
def test_whatever_the_parts_of_the_tokenizer(tokenizer: Tokenizer, words: list[str]):
    assert_found(tokenizer, words)


@pytest.mark.parametrize(("name", "joined"), [("bert", 3), ("gpt2", 3), ("llama2", 0)])
def test_what_is_joined(name: str, joined: int):
    assert assert_found(KNOWN[name], [" one", " two", "three", " Straße", " 4", " five!"]) == joined


def test_the_letters_of_words_stay_letters_however_they_are_normalized():
    assert len(ALL) > 700
    assert {unicodedata.category(character)[0] for character in ALL} == {"L"}
    kinds = [normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase, normalizers.BertNormalizer]
    for kind in [*kinds, lambda: normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])]:
        for character in ALL:
            seen = kind().normalize_str(f"x{character}y")[1:-1]
            assert any(unicodedata.category(each)[0] == "L" for each in seen), character
            assert not re.search(r"\s", seen), character
            assert not set(seen) & set("#-_~!$%&*+@"), character
    assert found(pa.array([f" {character}" for character in ALL]), WORD).all()
    assert not found(pa.array(["a", " ", " a ", "  a", " a1", " a-b", "\ta", " a\n", " 中", ""]), WORD).any()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_token_that_was_added_may_stand_inside_words(name: str):
    tokenizer = with_tokens(KNOWN[name], "cat")
    assert tokenizer.tokens(tokenizer.encode(" concatenate", special=False)).count("cat") == 1
    joined = assert_found(tokenizer, [" one", " concatenate", " two", " cat"])
    assert joined == (0 if name == "bert" else 4)  # what is counted differs: to BERT, "enate" is a word more


def test_a_token_over_two_words_does_not_make_up_for_one_inside_a_word():
    tokenizer, words = with_tokens(KNOWN["bert"], "b c", "cat"), [" b", " c", " acat"]
    assert len(tokenizer.encode("".join(words), special=False)) == len(words)
    assert_found(tokenizer, words)


def test_a_mark_that_is_the_prefix_of_what_continues_words_does_not_make_up_for_a_word_in_parts():
    vocab = ["[UNK]", "#a", "x", "b", "#ab"]
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "#", "max_input_chars_per_word": 100}
    splitters = [splitter("Metaspace", replacement="#", prepend_scheme="never"), splitter("Split", pattern={"String": "x"})]
    parts = {"pre_tokenizer": sequence(splitters, "pretokenizers")}
    data = {**listed(), "model": model | {"vocab": {token: number for number, token in enumerate(vocab)}}}
    assert_found(with_parts(data, **parts), [" axb", " ab"])


def with_tokens(tokenizer: Tokenizer, *contents: str) -> Tokenizer:
    """Add tokens that are found wherever they stand."""
    data = jsons.loads(tokenizer.json)
    first = 1 + max([*data["model"]["vocab"].values(), *(token["id"] for token in data["added_tokens"])])
    options = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": number, "content": text} | options for number, text in enumerate(contents, first)]
    return with_parts(data, added_tokens=[*data["added_tokens"], *added])


def test_where_the_ids_do_not_tell_the_words_they_are_encoded_apart():
    caller, rule = find_caller(engine(KNOWN["bert"].json)), find_rule(KNOWN["bert"].json)
    assert rule is not None
    assert rule.begins is not None
    assert caller.encode_joined([" one", " two five"], rule.begins) is None
    assert caller.encode_joined([" one", "", " two"], rule.begins) is None
    ids, lengths = caller.encode_joined([" one", " two"], rule.begins) or ([], [])
    assert [*ids] == KNOWN["bert"].encode(" one two", special=False)
    assert sum(lengths) == len(ids)

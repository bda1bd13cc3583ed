"""Texts on which other fast tokenizers went wrong: ids are those of the package, for columns and for single texts."""

import json as jsons
from pathlib import Path

import pyarrow as pa
import pytest
import tokenizers as hf

import mlxfp as fp
from tests.text.configurations import known
from tests.text.corpora import SENTENCES, stage_of, trained

ODD = {
    "ranges of combining marks": "".join(map(chr, range(0x300, 0x370))) + " a" + "".join(map(chr, range(0x1AB0, 0x1AFF))) + "b\u20d0\ufe20",
    "a class of identifiers": "(?:[·̀-ͯ·҃-֑҇-ׇֽֿׁׂׅׄؐ-ًؚ-ٰٟۖ-ۜ۟-۪ۤۧۨ-ܑۭܰ-݊ަ-ް߫-߽߳])",
    "letters of Unicode 16": "\U0001e5d0\U0001e5d1 \U00010d40\U00011380\ua7cb \U0001fae9",
    "replaced surrogates": "a\ufffd\ufffdb \ufffd",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e8\U0001f1ed",
    "Thai": "ภาษาไทยไม่เว้นวรรค น้ำ กำ",
    "Arabic marks": "السَّلَامُ عَلَيْكُمْ \u0600\u06dd ﷺ",
    "Chinese, Japanese and Korean": "漢字かな交じり文、カタカナ。한국어 \u1112\u1161\u11ab",
    "zeros": "a\0b\0\0 c",
    "line ends": "a\r\nb\r\n\r\nc\rd\n\n\ne \r\n f",
    "spaces of all kinds": "a\u00a0b\u2009c\u3000d\u200be\u2028f\u1680g\ufeffh",
    "soft hyphens": "co\u00adoperate co-\u00adop",
    "capitals that change their length": "İstanbul STRASSE ẞ ŉ ǰ ﬃ",
    "many spaces": " " * 100_000 + "x",
    "a long word": "x" * 20_000,
}


@pytest.mark.parametrize("name", known())
def test_odd_texts_have_the_ids_of_the_package(name: str):
    tokenizer, texts = known()[name], [*ODD.values(), *SENTENCES]
    own = hf.Tokenizer.from_str(tokenizer.json)
    expected = [own.encode(text).ids for text in texts]
    stage = stage_of(fp.tokenize(tokenizer))
    assert stage.apply(pa.record_batch({"text": texts * 2}))["input_ids"].to_pylist() == expected * 2
    for text, ids in zip(texts, expected, strict=True):
        assert stage.apply(pa.record_batch({"text": [text]}))["input_ids"].to_pylist() == [ids]


def test_a_million_spaces_are_encoded():
    tokenizer, text = trained("bpe"), " " * 1_000_000
    assert tokenizer.encode(text, special=False) == hf.Tokenizer.from_str(tokenizer.json).encode(text, add_special_tokens=False).ids


def changed(name: str) -> fp.Tokenizer:
    data = jsons.loads(trained("bpe").json)
    if name == "a merge":
        data["model"]["merges"] = [merge for merge in data["model"]["merges"] if "".join(merge) != "male"]
    elif name == "an added token":
        data["added_tokens"] = [*data["added_tokens"], {**data["added_tokens"][0], "id": 300, "content": "A male"}]
    elif name == "capitals":
        data["normalizer"] = {"type": "Lowercase"}
    return fp.Tokenizer(jsons.dumps(data))


@pytest.mark.parametrize("name", ["a merge", "an added token", "capitals", "literal text"])
def test_a_cache_behind_another_tokenizer_is_another_one(name: str, tmp_path: Path):
    rows = fp.from_examples([{"text": "A male[SEP]"}, {"text": "in class"}])
    plain = fp.pipe(rows, fp.tokenize(trained("bpe")))
    other = fp.pipe(rows, fp.tokenize(trained("bpe"), literal=True) if name == "literal text" else fp.tokenize(changed(name)))
    assert list(fp.pipe(plain, fp.cache(tmp_path))) == list(plain)
    assert list(fp.pipe(other, fp.cache(tmp_path))) == list(other) != list(plain)
    assert list(fp.pipe(plain, fp.cache(tmp_path))) == list(plain)

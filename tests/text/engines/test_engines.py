"""The law of engines: whatever the tokenizer, the text and the engine, the ids are those of `tokenizers`."""

import json as jsons
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tokenizers as hf
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.text.encoding import encoding
from mlxfp.text.encoding.encoding import encode_chunk, encode_rows, forget_words
from mlxfp.text.engines import gigatoken
from mlxfp.text.engines.choosing import choose
from mlxfp.text.engines.cleared import read_trials
from mlxfp.text.tokenizers.tokenizer import Tokenizer, for_literal_text
from tests.text.configurations import tokenizers
from tests.text.corpora import SENTENCES, TEXTS, trained

pytest.importorskip("gigatoken")
pytest.importorskip("tokie")

ENGINES = st.sampled_from(["auto", "gigatoken", "tokie"])
ODD_LETTERS = st.characters(codec="utf-8")


@pytest.fixture(autouse=True)
def _engines_for_any_column(monkeypatch):
    monkeypatch.setattr(encoding, "_LEAST", 1)
    monkeypatch.setattr(encoding, "_WORTH", 0)
    forget_words()
    yield
    forget_words()


def plain(tokenizer, texts):
    return [tokenizer.encode(text, special=False) for text in texts]


def assert_engines_agree(tokenizer: Tokenizer, texts: list[str], name: str = "auto") -> None:
    """Law: an engine never shows in the ids."""
    column = pa.array(["left out", *texts, "too"], pa.string())[1:-1]
    assert encode_chunk(evolve(tokenizer, engine=name), column).to_pylist() == plain(tokenizer, texts)


KINDS = [(name, kind) for name, trial in read_trials().items() for kind in trial.kinds]
HARD = ("don't 'Tis 12345 ...", "   x  \n\n\t y", "漢字漢字", "naïve café", "Привет мир")


@cache
def made(kind: str, size: int) -> Tokenizer:
    """Train a tokenizer of a cleared kind."""
    parts = jsons.loads(kind)
    empty = jsons.loads(hf.Tokenizer(hf.models.BPE()).to_str())
    model = {**parts["model"], "vocab": {"[UNK]": 0} if parts["model"]["type"] == "WordPiece" else {}, "merges": []}
    model |= {"unk_token": "[UNK]"} if parts["model"]["type"] == "WordPiece" or model.get("byte_fallback") else {}
    if model["type"] == "BPE" and model["byte_fallback"]:
        model["vocab"] = {"[UNK]": 0}
    data = {**empty, "model": model}
    data["normalizer"] = _joined("normalizers", [{"strip_accents": None, **part} for part in parts["normalizers"]])
    data["pre_tokenizer"] = _joined("pretokenizers", [{"trim_offsets": True, **part} for part in parts["splitters"]])
    own = hf.Tokenizer.from_str(jsons.dumps(data))
    own.train_from_iterator([*HARD, *SENTENCES], _trainer(model, size))
    own.add_special_tokens([hf.AddedToken("[MASK]", lstrip=True), hf.AddedToken("<|endoftext|>", rstrip=True)])
    data = jsons.loads(own.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer(jsons.dumps(data))


def _joined(name, parts):
    return {"type": "Sequence", name: parts} if len(parts) > 1 else parts[0] if parts else None


def _trainer(model, size):
    options = {"vocab_size": size, "show_progress": False}
    if model["type"] == "WordPiece":
        return hf.trainers.WordPieceTrainer(special_tokens=["[UNK]", "[CLS]", "[SEP]"], **options)
    if model["byte_fallback"]:
        return hf.trainers.BpeTrainer(special_tokens=["[UNK]", *(f"<0x{byte:02X}>" for byte in range(256))], **options)
    return hf.trainers.BpeTrainer(initial_alphabet=sorted(hf.pre_tokenizers.ByteLevel.alphabet()), **options)


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(KINDS)])
@given(size=st.sampled_from([300, 700]), texts=st.lists(TEXTS | st.text(ODD_LETTERS, max_size=8), min_size=1, max_size=5))
def test_an_engine_gives_the_ids_of_tokenizers_for_every_kind_that_it_is_cleared_for(name, kind, size, texts):
    tokenizer = made(kind, size)
    assert choose(tokenizer.json, name).proved is not None
    assert_engines_agree(tokenizer, texts, name)


@given(tokenizer=tokenizers(), texts=st.lists(TEXTS, min_size=1, max_size=4), name=ENGINES)
def test_no_engine_changes_the_ids_of_a_tokenizer_of_any_parts(tokenizer, texts, name):
    assert_engines_agree(tokenizer, texts, name)


@pytest.mark.parametrize(("kind", "name"), [("bpe", "gigatoken"), ("wordpiece", "tokie")])
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), at=st.integers(0, 6))
def test_ids_do_not_depend_on_chunks(kind, name, texts, at):
    tokenizer = evolve(trained(kind), engine=name)
    column = pa.array(texts, pa.large_string())
    whole = encode_chunk(tokenizer, column).to_pylist()
    assert [ids for part in (column[:at], column[at:]) for ids in encode_chunk(tokenizer, part).to_pylist()] == whole


@pytest.mark.parametrize(("kind", "name"), [("bpe", "gigatoken"), ("wordpiece", "tokie")])
def test_engines_take_texts_of_any_length_in_any_thread(kind, name):
    tokenizer = trained(kind)
    long = " ".join(SENTENCES * 400)
    texts = [*SENTENCES, "", long, "x" * 5000, long.replace(" ", ""), "\U0010ffff left to tokenizers", "[MASK]"] * 2
    expected = plain(tokenizer, texts)
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(lambda _: encode_chunk(evolve(tokenizer, engine=name), pa.array(texts)).to_pylist(), range(8))
        assert all(ids == expected for ids in done)


@pytest.mark.parametrize(("kind", "name"), [("bpe", "gigatoken"), ("wordpiece", "tokie")])
def test_columns_without_text_have_no_ids(kind, name):
    tokenizer = evolve(trained(kind), engine=name)
    assert encode_chunk(tokenizer, pa.array([], pa.string())).to_pylist() == []
    assert encode_chunk(tokenizer, pa.array(["", ""])).to_pylist() == [[], []]
    assert encode_chunk(tokenizer, pa.array(["\U0010ffff"])).to_pylist() == plain(tokenizer, ["\U0010ffff"])


def test_gigatoken_is_started_again_when_it_has_kept_many_new_words(monkeypatch):
    monkeypatch.setattr(gigatoken, "_SAMPLED", gigatoken._OF)
    size = len("".join(SENTENCES).encode())
    monkeypatch.setattr(gigatoken, "_KEPT", 2 * size)
    tokenizer = evolve(trained("bpe"), engine="gigatoken")
    engine = choose(tokenizer.json, "gigatoken").proved.engine
    engine.new, engine.seen, started = 0, set(), engine.tokenizer
    for _ in range(5):
        assert encode_chunk(tokenizer, pa.array(SENTENCES)).to_pylist() == plain(tokenizer, SENTENCES)
    assert engine.tokenizer is started  # the same words
    for round_ in range(5):
        others = [text.replace(" ", f" {round_}") for text in SENTENCES]
        assert encode_chunk(tokenizer, pa.array(others)).to_pylist() == plain(tokenizer, others)
    assert engine.tokenizer is not started


def test_literal_text_has_no_special_tokens_with_an_engine_either():
    tokenizer = evolve(trained("bpe"), engine="gigatoken")
    texts = ["[MASK] a[CLS]", *SENTENCES]
    literal = for_literal_text(tokenizer)
    assert encode_chunk(literal, pa.array(texts)).to_pylist() == [tokenizer.encode(text, special=False, literal=True) for text in texts]


def test_tokenize_gives_the_same_rows_with_every_engine():
    rows = fp.from_table(pa.table({"text": [*SENTENCES, "naïve \u0378 café", "[MASK]!"] * 3}))
    for kind in ("bpe", "wordpiece"):
        found = [
            list(fp.pipe(rows, fp.tokenize(evolve(trained(kind), engine=name), max_length=9)))
            for name in ("tokenizers", "auto", "gigatoken", "tokie")
        ]
        assert found[1:] == found[:1] * 3


@pytest.mark.skipif(not hasattr(os, "fork") or sys.version_info >= (3, 15), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("kind", "name"), [("bpe", "gigatoken"), ("wordpiece", "tokie")])
def test_a_process_forked_after_an_engine_was_used_has_the_same_ids(kind, name, tmp_path):
    tokenizer, column = evolve(trained(kind), engine=name), pa.array(SENTENCES * 20)
    expected = encode_rows(tokenizer, column).values
    child = os.fork()
    if child == 0:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        Path(tmp_path, "ids").write_bytes(encode_rows(tokenizer, column).values.tobytes())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(np.frombuffer(Path(tmp_path, "ids").read_bytes(), np.int32), expected)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_ids_do_not_depend_on_the_pieces_of_a_column(kind):
    engine = choose(trained("wordpiece").json, "tokie").proved.engine  # itself: a probe would not let a wrong one pass
    texts = ["[MASK]", *SENTENCES]
    ids, ends = engine.encode(pa.array(texts, kind))
    times = 3_000_000 // len("".join(texts))  # several pieces of 1 MB
    many, many_ends = engine.encode(pa.array(["left out", *texts * times, "too"], kind)[1:-1])
    assert np.array_equal(many, np.tile(ids, times))
    assert np.array_equal(np.diff(many_ends), np.tile(np.diff(ends), times))


def test_where_an_engine_fails_the_tokenizer_itself_encodes(monkeypatch):
    tokenizer = evolve(trained("bpe"), engine="gigatoken")
    found = choose(tokenizer.json, "gigatoken")
    failing = evolve(found, proved=evolve(found.proved, engine=FailsAt("female", found.proved.engine)))
    monkeypatch.setattr(encoding, "choose", lambda json, wanted: failing)
    for texts, outcome in ((SENTENCES * 9, "failed"), ([text for text in SENTENCES if "female" not in text], "encoded")):
        assert encode_chunk(tokenizer, pa.array(texts)).to_pylist() == plain(tokenizer, texts)
        assert failing.proved.engine.outcomes.pop() == outcome


@frozen
class FailsAt:
    """An engine that takes no text with a word."""

    word: str
    own: object
    outcomes: list = field(factory=list)

    def encode(self, texts):
        if any(self.word in text for text in texts.to_pylist()):
            self.outcomes.append("failed")
            raise RuntimeError("no such word")
        self.outcomes.append("encoded")
        return self.own.encode(texts)


@pytest.mark.parametrize("text", ["a" * 70_000, "\u00e9" * 50_000, "b " * 20_000 + "a" * 50_000, "a." * 40_000])
def test_a_word_longer_than_the_pieces_of_tokie_is_one_unknown_token(text: str, tmp_path: Path):
    """Found by the law of native inputs: tokie cut the word into two unknown tokens."""
    path = tmp_path / "tokenizer.json"
    path.write_text(fp.train_tokenizer(fp.from_examples([{"text": "a b . \u00e9"}] * 3), kind="wordpiece", vocab_size=100).json)
    rows = fp.from_examples([{"text": text}, {"text": "a"}])
    expected, ids = (list(fp.pipe(rows, fp.tokenize(fp.load_tokenizer(path, engine=name)))) for name in ("tokenizers", "tokie"))
    assert ids == expected

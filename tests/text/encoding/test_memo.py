"""A memo holds no more than it may, and nobody sees that it is there."""

import os
import pickle
import random
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.text.encoding.batch_calls import find_caller
from mlxfp.text.encoding.boundary_rules import find_rule
from mlxfp.text.encoding.encoding import encode_chunk
from mlxfp.text.encoding.memo import Memo
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from tests.text.corpora import trained
from tests.text.memos import find_memo


def memo_of(tokenizer: Tokenizer, limit: int = 1 << 20) -> Memo:
    rule = find_rule(tokenizer.json)
    assert rule is not None
    return Memo(find_caller(engine(tokenizer.json)), rule, limit)


def ids_of(memo: Memo, words: list[str]) -> list[list[int]]:
    entries = memo.find(pa.array(words, pa.string()), float("inf"))
    assert entries is not None
    return [entries.ids[start:][:length].tolist() for start, length in zip(entries.starts, entries.lengths, strict=True)]


@given(
    calls=st.lists(st.lists(st.text("abcé ", min_size=1, max_size=5), unique=True, min_size=1, max_size=12), max_size=8),
    limit=st.sampled_from([0, 1000, 4000, 1 << 20]),
)
def test_words_have_the_ids_that_the_tokenizer_gives_them_however_often_they_were_forgotten(calls: list[list[str]], limit: int):
    tokenizer = trained("bpe")
    memo = memo_of(tokenizer, limit)
    for words in calls:
        assert ids_of(memo, words) == [tokenizer.encode(word, special=False) for word in words]


def test_entries_outlive_the_memo_that_gave_them():
    memo = memo_of(trained("bpe"), 20_000)
    words = [f"w{number}" for number in range(50)]
    entries = memo.find(pa.array(words), float("inf"))
    assert entries is not None
    before = [entries.ids[start:][:length].tolist() for start, length in zip(entries.starts, entries.lengths, strict=True)]
    for round_ in range(20):
        ids_of(memo, [f"v{round_}{number}" for number in range(60)])
    assert before == [entries.ids[start:][:length].tolist() for start, length in zip(entries.starts, entries.lengths, strict=True)]
    assert before == ids_of(memo, words)


def test_too_many_new_bytes_are_not_encoded_and_not_kept():
    memo = memo_of(trained("bpe"))
    assert ids_of(memo, ["ab"])
    assert (memo.find(pa.array(["ab", "abc", "defg"]), 6), len(memo)) == (None, 1)
    entries = memo.find(pa.array(["ab", "abc", "defg"]), 7)
    assert (entries is None, len(memo)) == (False, 3)


def test_a_memo_takes_no_more_memory_than_its_limit():
    limit = 2 << 20
    memo = memo_of(trained("wordpiece"), limit)
    rng = random.Random(0)
    tracemalloc.start()
    try:
        most = 0
        for _ in range(60):
            ids_of(memo, list({"".join(rng.choices("abcdefgh", k=rng.randint(1, 12))) for _ in range(1000)}))
            most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert 0.5 * limit < most < 1.2 * limit


def test_threads_share_a_memo_and_see_their_own_words():
    tokenizer = trained("bpe")
    memo = memo_of(tokenizer, 50_000)
    barrier = threading.Barrier(4)

    def encode(seed: int) -> bool:
        rng = random.Random(seed)
        barrier.wait()
        for _ in range(40):
            words = list({f"w{rng.randrange(500)}" for _ in range(50)})
            if ids_of(memo, words) != [tokenizer.encode(word, special=False) for word in words]:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(4)))


def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have():
    tokenizer = trained("bpe")
    texts = pa.array(["some words that repeat"] * 2000)
    expected = encode_chunk(tokenizer, texts)
    memo = find_memo(tokenizer)
    assert memo is not None
    with memo._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of forks where there are threads
        child = os.fork()
        if child == 0:
            os._exit(int(find_memo(tokenizer) is memo or encode_chunk(tokenizer, texts) != expected))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_encoded_does_not_show_in_the_tokenizer():
    tokenizer = trained("unigram")
    before = pickle.dumps(tokenizer), hash(tokenizer), repr(tokenizer)
    encode_chunk(tokenizer, pa.array(["some words that repeat"] * 2000))
    assert (pickle.dumps(tokenizer), hash(tokenizer), repr(tokenizer)) == before

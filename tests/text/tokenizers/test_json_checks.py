"""Damaged and hostile files of tokenizers are errors of ours: never a panic, the end of the process, or no end."""

import json as jsons
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mlxfp as fp
import tests
from mlxfp.support.errors import DataError, MlxfpError
from mlxfp.text.tokenizers.configuration import read_configuration
from mlxfp.text.tokenizers.json_checks import is_panic
from mlxfp.text.tokenizers.tokenizer import Tokenizer, cannot_encode
from tests.text.configurations import CHARSMAP, PRECOMPILED, known, splitter
from tests.text.corpora import stage_of, trained

Json = dict[str, Any]

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
MERGES = {"type": "BPE", "vocab": {"a": 0, "é": 1, "aé": 2}, "merges": [["a", "é"]], "continuing_subword_prefix": "x"}


def framed(special: Json) -> Json:
    """Write a post-processor with the token X in front of a text."""
    begin, *texts = ({"SpecialToken": {"id": "X", "type_id": 0}}, *({"Sequence": {"id": name, "type_id": 0}} for name in "AB"))
    return {"post_processor": {"type": "TemplateProcessing", "single": [begin, texts[0]], "pair": texts, "special_tokens": special}}


HOSTILE: dict[str, tuple[Json, str]] = {
    "an id beyond 32 bits": (
        {"model": {**WORDS, "vocab": {"[UNK]": 2**40}}},
        r"the id 1,099,511,627,776 is too large; ids must be",
    ),
    "an id that needs endless loops": ({"model": {**WORDS, "vocab": {"[UNK]": 2**31}}}, "the id 2,147,483,648 is too large"),
    "an id in a frame": (framed({"X": {"id": "X", "ids": [2**32 - 2], "tokens": ["X"]}}), "the id 4,294,967,294 is too large"),
    "a frame without its token": (framed({}), "no entry found for key"),
    "a merge without the prefix": ({"model": MERGES}, r"the second token of the merge \['a', 'é'\] does not begin with"),
    "a merge without the prefix, as text": ({"model": {**MERGES, "merges": ["a é"]}}, "the second token of the merge 'a é' does not"),
    "no characters in a split": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "chunk size must be non-zero|untagged enum"),
    "an empty map of characters": ({"normalizer": {**PRECOMPILED, "precompiled_charsmap": ""}}, "Cannot parse precompiled_charsmap"),
    "half a map of characters": ({"normalizer": {**PRECOMPILED, "precompiled_charsmap": CHARSMAP[:400]}}, "Cannot parse"),
    "a map that leads nowhere": (
        {"normalizer": {**PRECOMPILED, "precompiled_charsmap": CHARSMAP[:8] + "ZZZZZZZZ" + CHARSMAP[16:]}},
        "index out of bounds",
    ),
    "a pattern that is none": ({"pre_tokenizer": splitter("Split", pattern={"Regex": "("})}, "Oniguruma error|untagged enum"),
    "no vocabulary": ({"model": {"type": "WordLevel"}}, "data did not match|missing field"),
    "no model": ({"model": None}, "expected a JSON object with an object under the key 'model'"),
}


def written(parts: Json) -> str:
    return jsons.dumps({"version": "1.0", "model": WORDS, "added_tokens": [], **parts})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_when_it_is_read(name: str, tmp_path: Path):
    parts, reason = HOSTILE[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(written(parts), "utf-8")
    with pytest.raises(DataError, match=f"The JSON of a tokenizer is malformed: .*({reason})"):
        Tokenizer(path.read_text("utf-8"))
    with pytest.raises(DataError, match=r"tokenizer\.json: The JSON of a tokenizer is malformed"):
        fp.load_tokenizer(path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json"])
@pytest.mark.parametrize("nested", ["[" * 200_000, '{"a":' * 200_000])
def test_files_nested_without_end_are_refused(name: str, nested: str, tmp_path: Path):
    if name == "vocab.json":
        (tmp_path / "merges.txt").write_text("")
    elif name != "tokenizer.json":
        (tmp_path / "tokenizer.json").write_text(written({}))
    (tmp_path / name).write_text(nested)
    with pytest.raises(DataError, match=rf"{name.replace('.', '[.]')}.* nested too deeply"):
        fp.load_tokenizer(tmp_path)


def test_a_large_id_in_a_vocabulary_of_bytes_is_refused(tmp_path: Path):
    (tmp_path / "vocab.json").write_text('{"a": 4000000000}')
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(DataError, match=r"vocab\.json and merges\.txt do not fit each other: .*the id 4,000,000,000 is too large"):
        fp.load_tokenizer(tmp_path)


@pytest.mark.parametrize("listed", [["<x>"], {"0": "<x>"}])
def test_added_tokens_that_are_no_objects_are_refused(listed: Any, tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na")
    (tmp_path / "tokenizer_config.json").write_text(jsons.dumps({"added_tokens_decoder": listed}))
    with pytest.raises(DataError, match=r"added_tokens_decoder of tokenizer_config.json in .* must hold objects"):
        fp.load_tokenizer(tmp_path)


def test_parts_without_a_type_are_refused():
    with pytest.raises(DataError, match=r"each entry of normalizers must be a JSON object with the key .type., got \['x'\]"):
        read_configuration(written({"normalizer": ["x"]}))


def test_a_panic_at_a_text_is_an_error_and_ctrl_c_is_none():
    panic = type("PanicException", (BaseException,), {})("index out of bounds")
    assert is_panic(panic)
    assert "cannot encode a text: index out of bounds" in str(cannot_encode(panic))
    with pytest.raises(KeyboardInterrupt):
        cannot_encode(KeyboardInterrupt())


@pytest.mark.parametrize(
    "part",
    [
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|aa)+$b"}, "content": "b"}},
    ],
)
def test_a_regular_expression_that_tries_without_end_is_stopped(part: Json):
    tokenizer = Tokenizer(jsons.dumps({"version": "1.0", "added_tokens": [], "model": WORDS, **part}))
    hostile = "a" * 60
    said = r"a regular expression in the tokenizer JSON needs too many steps \(.*retry-limit.*\)\. Simplify nested repetitions"
    with pytest.raises(DataError, match=said):
        tokenizer.encode(hostile)
    with pytest.raises(DataError, match=said):
        list(fp.tokenize(tokenizer)(fp.from_examples([{"text": hostile}])))


# --- random damage, in a process of its own: what is sought may end it


def damaged(data: Any, random_: random.Random) -> Any:
    """Change one place of a JSON value, anywhere in it."""
    if isinstance(data, dict | list) and data and random_.random() < 0.85:
        places = list(data) if isinstance(data, dict) else range(len(data))
        place = random_.choice(list(places)[:12])  # parts rather than words of the vocabulary
        if random_.random() < 0.15:
            kept = [each for each in places if each != place]
            return {each: data[each] for each in kept} if isinstance(data, dict) else [data[each] for each in kept]
        copy: Any = dict(data) if isinstance(data, dict) else list(data)
        copy[place] = damaged(data[place], random_)
        return copy
    odd = [None, True, 0, 1, -1, 7, 2**31, 2**40, 1e300, 0.5, "", "a", "é", "▁", "[UNK]", "x" * 300, [], {}, [["a"]], {"type": "NFC"}]
    return random_.choice([*odd, {"String": ""}, {"Regex": "a*"}, CHARSMAP[:40], [data], {"a": data}])


def try_damage(first: int, count: int) -> None:
    """Load and use damaged tokenizers. Anything but an `MlxfpError` leaves this function, or ends the process."""
    names = sorted(known())
    chunk = pa.record_batch({"text": ["a year é old [SEP]", "", "in  class"] * 50})
    for seed in range(first, first + count):
        random_ = random.Random(seed)
        data = jsons.loads(known()[random_.choice(names)].json)
        for _ in range(random_.choice([1, 1, 2, 3])):
            data = damaged(data, random_)
        print(seed, flush=True)  # noqa: T201  # what a test that fails shows
        try:
            tokenizer = Tokenizer(jsons.dumps(data))
            ids = tokenizer.encode("in a class é", literal=seed % 2 == 0)
            tokenizer.encode_pair("in", "a")
            tokenizer.decode(ids)
            stage_of(fp.tokenize(tokenizer, offsets=seed % 3 == 0)).apply(chunk)
            tokenizer.special_ids, tokenizer.vocab_size  # noqa: B018  # properties that read the package
        except MlxfpError:
            pass


def test_random_damage_never_ends_the_process():
    code = "from tests.text.tokenizers.test_json_checks import try_damage; try_damage(0, 400)"
    root = Path(tests.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"seed {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"


def test_what_is_not_damaged_is_not_refused():
    for tokenizer in (*known().values(), trained("bpe", lowercase=True)):
        assert Tokenizer(tokenizer.json) == Tokenizer(jsons.dumps(jsons.loads(tokenizer.json)))

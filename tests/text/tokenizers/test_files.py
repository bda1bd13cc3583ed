"""Reading tokenizers from files and folders, and writing them."""

import json as jsons
import shutil
from pathlib import Path

import pytest
import tokenizers as hf
from tokenizers import models, pre_tokenizers

from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MissingFileError
from mlxfp.text.tokenizers.files import load_tokenizer
from tests.text.corpora import SENTENCES, framings, trained

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "cafe"]


def write(folder: Path, **files: object) -> Path:
    """Write files, `name_ext` for `name.ext`, objects as JSON; return the folder."""
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_bytes((content if isinstance(content, str) else jsons.dumps(content)).encode())
    return folder


def byte_level_files(vocab: dict[str, int] | None = None) -> dict[str, object]:
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    return {"vocab_json": {**letters, "ca": 256, "cat": 257, **(vocab or {})}, "merges_txt": "#version: 0.2\nc a\nca t\n"}


@pytest.mark.parametrize("place", range(9))
def test_what_was_saved_loads_to_an_equal_value(tmp_path: Path, place: int):
    tokenizer = framings()[place]
    tokenizer.save(tmp_path / "new" / "folder")
    assert load_tokenizer(tmp_path / "new" / "folder") == tokenizer


def test_a_file_alone_gives_roles_to_the_customary_tokens(tmp_path: Path):
    tokenizer = trained("wordpiece")
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path / "tokenizer.json") == tokenizer
    assert load_tokenizer(str(tmp_path / "tokenizer.json")).pad_id == 0


def test_the_files_beside_it_say_the_roles(tmp_path: Path):
    trained("bpe").save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    write(tmp_path, special_tokens_map_json={"eos_token": {"content": "[SEP]", "lstrip": False}, "pad_token": "[MASK]"})
    write(tmp_path, tokenizer_config_json={"pad_token": None, "bos_token": "[CLS]"})
    found = load_tokenizer(tmp_path)
    assert (found.pad_token, found.bos_id, found.eos_id, found.cls_token) == (None, 2, 3, "[CLS]")


def test_the_marks_of_roberta_are_found_in_its_post_processor(tmp_path: Path):
    tokenizer = framings()[4]
    (tmp_path / "tokenizer.json").write_text(tokenizer.json.replace('"cls":["[CLS]",2]', '"cls":["in",7]'))
    assert load_tokenizer(tmp_path).cls_token == "in"


def test_the_unknown_token_is_the_models_own(tmp_path: Path):
    model: models.Model = models.WordLevel({"a": 0, "<oov>": 1, "[UNK]": 2}, unk_token="<oov>")
    (tmp_path / "tokenizer.json").write_text(hf.Tokenizer(model).to_str())
    assert load_tokenizer(tmp_path).unk_token == "<oov>"
    model = models.Unigram([("<pad>", 0.0), ("?", 0.0)], unk_id=1)
    (tmp_path / "tokenizer.json").write_text(hf.Tokenizer(model).to_str())
    assert load_tokenizer(tmp_path).unk_id == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_list_of_words_is_wordpiece(tmp_path: Path, end: str):
    write(tmp_path, vocab_txt=end.join([*WORDS, ""]))
    found = load_tokenizer(tmp_path)
    assert found == load_tokenizer(tmp_path / "vocab.txt")
    assert found.vocab_size == len(WORDS)
    assert found.tokens(found.encode("A Cats, café")) == ["[CLS]", "a", "cat", "##s", "[UNK]", "cafe", "[SEP]"]
    assert found.decode(found.encode("a cats")) == "a cats"
    assert [found.pad_id, found.mask_id, *found.encode("[MASK]", special=False)] == [0, 4, 4]


def test_a_vocabulary_with_capitals_keeps_them_unless_told_otherwise(tmp_path: Path):
    write(tmp_path, vocab_txt="\n".join([*WORDS, "Cat"]))
    assert load_tokenizer(tmp_path).encode("Cat", special=False) == [9]
    write(tmp_path, tokenizer_config_json={"do_lower_case": True})
    assert load_tokenizer(tmp_path).encode("Cat", special=False) == [6]
    write(tmp_path, tokenizer_config_json={"do_lower_case": None})
    assert load_tokenizer(tmp_path).encode("Cat", special=False) == [9]


def test_a_list_of_words_is_framed_by_the_tokens_that_its_folder_names(tmp_path: Path):
    roles = {"cls_token": {"content": "<s>"}, "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<hide>"}
    write(tmp_path, vocab_txt="<s>\n<pad>\n</s>\n<unk>\ncat\n<hide>\n", tokenizer_config_json=roles)
    found = load_tokenizer(tmp_path)
    assert found.tokens(found.encode("cat dog")) == ["<s>", "cat", "<unk>", "</s>"]
    assert found.tokens(found.encode_pair("cat", "cat")[0]) == ["<s>", "cat", "</s>", "</s>", "cat", "</s>"]
    assert (found.cls_id, found.sep_id, found.unk_id, found.pad_id) == (0, 2, 3, 1)
    assert found.encode("cat <hide>", special=False) == [4, found.mask_id]
    assert found.special_ids == {0, 1, 2, 3, 5}


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens_json": {"[MASK]": 4, "<new>": 9}},
        {"tokenizer_config_json": {"added_tokens_decoder": {"4": {"content": "[MASK]"}, "9": {"content": "<new>", "special": False}}}},
    ],
)
def test_tokens_that_other_files_add_to_a_vocabulary_are_not_left_out(tmp_path: Path, files: dict[str, object]):
    with pytest.raises(DataError, match=r"lacks added tokens that other files of the folder list, such as '<new>'\. Write a"):
        load_tokenizer(write(tmp_path, vocab_txt="\n".join(WORDS), **files))
    assert load_tokenizer(write(tmp_path, vocab_txt="\n".join([*WORDS, "<new>"]), **files)).vocab_size == len(WORDS) + 1


def test_a_vocabulary_with_merges_is_byte_level_bpe(tmp_path: Path):
    files = byte_level_files({"<|endoftext|>": 258})
    windows = load_tokenizer(write(tmp_path, **files | {"merges_txt": "#version: 0.2\r\nc a\r\nca t\r\n"}))
    found = load_tokenizer(write(tmp_path, **files))
    assert found == windows
    assert found.tokens(found.encode("cats")) == ["cat", "s"]
    assert (found.bos_id, found.eos_id, found.pad_token) == (258, 258, None)
    assert found.encode("a<|endoftext|>")[-1] == 258
    for sentence in SENTENCES:
        assert found.decode(found.encode(sentence)) == sentence
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "vocab.json", other / "encoder.json")
    shutil.copy(tmp_path / "merges.txt", other / "vocab.bpe")
    assert load_tokenizer(other) == found


def test_a_vocabulary_with_the_marks_of_roberta_frames_texts(tmp_path: Path):
    files = byte_level_files({"<s>": 258, "</s>": 259, "<pad>": 260, "<mask>": 261})
    found = load_tokenizer(write(tmp_path, **files, tokenizer_config_json={"tokenizer_class": "RobertaTokenizer"}))
    assert found.tokens(found.encode("cat <mask>")) == ["<s>", "cat", "<mask>", "</s>"]
    assert found.tokens(found.encode_pair("cat", "cat")[0]) == ["<s>", "cat", "</s>", "</s>", "cat", "</s>"]
    assert (found.cls_id, found.sep_id, found.bos_id, found.eos_id, found.pad_id) == (258, 259, 258, 259, 260)


def test_vocab_txt_and_tokenizer_json_of_bert_agree(data_folder: Path):
    folder = data_folder / "tokenizers/bert-base-uncased"
    whole, words = load_tokenizer(folder), load_tokenizer(folder / "vocab.txt")
    lines = [*(data_folder / "wikitext2/valid.txt").read_text("utf-8").splitlines()[:500], *SENTENCES]
    assert [whole.encode(line) for line in lines] == [words.encode(line) for line in lines]
    assert (whole.vocab_size, whole.mask_id, whole.special_ids) == (30522, 103, words.special_ids)
    assert load_tokenizer(folder / "tokenizer.json") == whole


def test_gpt2_encodes_as_published(data_folder: Path):
    tokenizer = load_tokenizer(data_folder / "tokenizers/gpt2")
    assert tokenizer.encode("Hello world<|endoftext|>") == [15496, 995, 50256]
    assert tokenizer.vocab_size == 50257
    with pytest.raises(ArgumentError, match="has no pad token"):
        _ = tokenizer.pad_id


def test_nothing_there_is_named(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"No tokenizer is at 'bert-base-uncased'\. .* or a name on the hub"):
        load_tokenizer("bert-base-uncased")
    with pytest.raises(MissingFileError, match=r"contains no tokenizer \(files: none\)\. Add tokenizer\.json, vocab\.txt"):
        load_tokenizer(tmp_path)
    write(tmp_path, config_json={})
    with pytest.raises(MissingFileError, match=r"contains no tokenizer \(files: config\.json\)\."):
        load_tokenizer(tmp_path)
    write(tmp_path, spiece_model="x")
    with pytest.raises(DataError, match=r"contains a SentencePiece model \(spiece\.model\) but no tokenizer\.json\. Write a tokenizer"):
        load_tokenizer(tmp_path)


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    broken = {
        "tokenizer_json": ('{"model": 3}', r"tokenizer\.json: The JSON of a tokenizer is malformed"),
        "tokenizer_config_json": ("{nope", r"tokenizer_config\.json is not valid JSON"),
        "special_tokens_map_json": ("[1]", r"special_tokens_map\.json must contain a JSON object, got list"),
        "vocab_txt": ("a\nb", r"vocab\.txt is not a WordPiece vocabulary: it has no line \[UNK\]"),
    }
    for name, (text, message) in broken.items():
        folder = tmp_path / name
        folder.mkdir()
        with pytest.raises(DataError, match=message):
            load_tokenizer(write(folder, **{name: text}))
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"tokenizer\.json is not UTF-8 text"):
        load_tokenizer(tmp_path / "tokenizer.json")
    trained("bpe").save(tmp_path)
    write(tmp_path, tokenizer_config_json={"pad_token": 5})
    with pytest.raises(DataError, match=r"tokenizer_config\.json: pad_token must be str or NoneType, got int"):
        load_tokenizer(tmp_path)
    write(tmp_path, tokenizer_config_json={"do_lower_case": "true"})
    with pytest.raises(DataError, match=r"tokenizer_config\.json: do_lower_case must be bool, got str: 'true'"):
        load_tokenizer(tmp_path)
    with pytest.raises(ArgumentTypeError, match=r"path must be str or PathLike, got NoneType"):
        load_tokenizer(None)  # type: ignore[arg-type]


def test_vocabularies_of_another_kind_are_refused(tmp_path: Path):
    files = byte_level_files()
    for other in ({"tokenizer_config_json": {"tokenizer_class": "Qwen2Tokenizer"}}, {"tokenizer_config_json": {"add_bos_token": True}}):
        with pytest.raises(DataError, match=r"vocab\.json and merges\.txt are not the files of GPT-2 or RoBERTa"):
            load_tokenizer(write(tmp_path, **files, **other))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(DataError, match="so the pre-tokenizer is unknown"):
        load_tokenizer(write(tmp_path, **byte_level_files({"cat</w>": 258})))
    with pytest.raises(DataError, match=r"vocab\.json and merges\.txt do not fit each other"):
        load_tokenizer(write(tmp_path, **files | {"merges_txt": "q u\n"}))

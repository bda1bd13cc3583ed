"""Every collator on real files: images, sound and text as people have them."""

import gzip
import wave
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.testing import laws
from mlxfp.testing.comparing import assert_same


def part(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        pytest.skip(f"the folder of real data has no {name}")
    return folder / name


@cache
def tokenizer_in(folder: Path) -> fp.Tokenizer:
    return fp.load_tokenizer(folder)


@pytest.fixture
def bert(data_folder: Path) -> fp.Tokenizer:
    return tokenizer_in(part(data_folder, "tokenizers/bert-base-uncased"))


@pytest.fixture
def reviews(data_folder: Path, bert: fp.Tokenizer) -> Any:
    lines = part(data_folder, "sst2/dev.tsv").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(("text", "label"), line.rsplit("\t", 1), strict=True)) for line in lines]
    return fp.pipe(fp.from_examples([{**row, "label": int(row["label"])} for row in rows]), fp.tokenize(bert, max_length=48))


def assert_the_list_agrees(collator: Any, group: fp.Examples) -> None:
    assert_same(collator(group), collator(list(group)), "a view gives what the list of its rows gives")
    laws.assert_permutes(collator, group[:4], [2, 0, 3, 1])


def test_reviews_as_text(reviews: Any, bert: fp.Tokenizer):
    collator = fp.collators.text(pad_id=bert.pad_id, vocab_size=bert.vocab_size, label="label", classes=2, pad_multiple=16, carry=["text"])
    groups = list(fp.pipe(reviews, fp.batch(64)))
    batches = list(fp.pipe(reviews, fp.batch(64), fp.collate(collator)))
    assert sum(len(each["labels"]) for each in batches) == 872
    assert {each["input_ids"].shape[1] for each in batches} <= {16, 32, 48}
    for group, each in zip(groups, batches, strict=True):
        for row, ids, mask in zip(group, each["input_ids"].tolist(), each["attention_mask"].tolist(), strict=True):
            assert ids[: sum(mask)] == row["input_ids"]
    assert batches[0]["text"][0].startswith("one long string of cliches")
    assert_the_list_agrees(collator, groups[0])


def test_reviews_with_masks(reviews: Any, bert: fp.Tokenizer):
    collator = fp.collators.masked(
        pad_id=bert.pad_id,
        mask_id=bert.mask_id,
        special_ids=bert.special_ids,
        vocab_size=bert.vocab_size,
        seed=0,
    )
    dataset = fp.pipe(reviews, fp.batch(64), fp.collate(collator))
    chosen, hidden, tokens = 0, 0, 0
    for each in dataset:
        shown, labels, mask = (np.array(each[name]) for name in ("input_ids", "labels", "attention_mask"))
        picked = labels >= 0
        chosen, hidden, tokens = chosen + picked.sum(), hidden + (shown == bert.mask_id).sum(), tokens + mask.sum() - 2 * len(mask)
        assert not np.isin(labels, list(bert.special_ids)).any()
        assert (mask[picked] == 1).all()
    assert 0.14 < chosen / tokens < 0.16
    assert 0.78 < hidden / chosen < 0.82
    first, second = (next(item for item, _ in fp.iterate(dataset, epoch=epoch))["labels"] for epoch in (0, 1))
    assert not mx.array_equal(first, second)
    assert_the_list_agrees(collator, next(iter(fp.pipe(reviews, fp.batch(64)))))


def test_reviews_to_their_own_copies(reviews: Any, bert: fp.Tokenizer):
    copied = fp.pipe(reviews, fp.tokenize(bert, max_length=24, into="labels"))
    collator = fp.collators.seq2seq(pad_id=bert.pad_id, start_id=bert.cls_id, vocab_size=bert.vocab_size, length=48, target_length=24)
    for each in fp.pipe(copied, fp.batch(64), fp.collate(collator)):
        assert (each["input_ids"].shape[1], each["labels"].shape[1]) == (48, 24)
        inputs, labels = np.array(each["decoder_input_ids"]), np.array(each["labels"])
        seen = labels[:, :-1] >= 0
        assert (inputs[:, 1:][seen & (labels[:, 1:] >= 0)] == labels[:, :-1][seen & (labels[:, 1:] >= 0)]).all()


def test_shakespeare_for_a_causal_model(data_folder: Path):
    gpt2 = tokenizer_in(part(data_folder, "tokenizers/gpt2"))
    play = part(data_folder, "tinyshakespeare/input.txt").read_text(encoding="utf-8")[:100_000]
    rows = fp.pipe(fp.from_examples([{"text": scene} for scene in play.split("\n\n")]), fp.tokenize(gpt2))
    collator = fp.collators.causal(pad_id=gpt2.eos_id, vocab_size=gpt2.vocab_size)
    batches = list(fp.pipe(rows, fp.windows(65, stride=64), fp.batch(16), fp.collate(collator)))
    assert len(batches) > 20
    for each in batches:
        assert each["input_ids"].shape[1] == 64
        inputs, labels = np.array(each["input_ids"]), np.array(each["labels"])
        assert (inputs[:, 1:] == labels[:, :-1])[labels[:, 1:] >= 0].all()
    assert gpt2.decode(batches[0]["input_ids"][0].tolist()).startswith("First Citizen:")


def idx(path: Path) -> np.ndarray:
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def test_handwritten_digits(data_folder: Path):
    folder = part(data_folder, "mnist_t10k")
    pixels, digits = idx(folder / "t10k-images-idx3-ubyte.gz"), idx(folder / "t10k-labels-idx1-ubyte.gz")
    collator = fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["mnist"], label="digit", classes=10)
    dataset = fp.pipe(fp.from_table({"image": pixels, "digit": digits}), fp.batch(500), fp.collate(collator))
    batches = list(dataset)
    assert fp.length(dataset) == len(batches) == 20
    assert {each["images"].shape for each in batches} == {(500, 28, 28, 1)}
    assert np.concatenate([each["labels"].tolist() for each in batches]).tolist() == digits.tolist()
    images = np.concatenate([np.array(each["images"]) for each in batches])
    np.testing.assert_allclose(images[..., 0], (pixels / 255 - 0.1307) / 0.3081, rtol=1e-4, atol=1e-5)
    assert abs(images.mean()) < 0.02  # the constants are those of the training images
    assert abs(images.std() - 1) < 0.02
    assert_the_list_agrees(collator, next(iter(fp.pipe(fp.from_table({"image": pixels[:8], "digit": digits[:8]}), fp.batch(8)))))


def test_photographs(data_folder: Path):
    pytest.importorskip("PIL", reason="decoding images needs Pillow: pip install 'mlxfp[vision]'")
    folder = part(data_folder, "cifar10")
    names = sorted(path.name for path in folder.iterdir())
    rows = [
        {"image": path.read_bytes(), "kind": place, "file": path.name}
        for place, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
    ]
    dataset = fp.from_examples(rows)
    plain = fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["cifar10"], label="kind", classes=10, carry=["file"])
    batches = list(fp.pipe(dataset, fp.batch(100), fp.collate(plain)))
    assert [each["images"].shape for each in batches] == [(100, 32, 32, 3)] * 3
    images = np.concatenate([np.array(each["images"]) for each in batches])
    assert np.abs(images.mean(axis=(0, 1, 2))).max() < 0.2  # 300 photographs of the 50,000 that the constants are of
    assert np.abs(images.std(axis=(0, 1, 2)) - 1).max() < 0.1
    small = fp.collators.vision(mode="grey", size=(24, 20))
    assert {each["images"].shape for each in fp.pipe(dataset, fp.batch(100), fp.collate(small))} == {(100, 24, 20, 1)}
    for collator in (plain, small):
        assert_the_list_agrees(collator, next(iter(fp.pipe(dataset, fp.batch(16)))))


def test_spoken_digits(data_folder: Path):
    rows = []
    for path in sorted(part(data_folder, "speech").glob("*.wav")):
        with wave.open(str(path)) as sound:
            assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (8000, 1, 2)
            rows.append({"waveform": np.frombuffer(sound.readframes(sound.getnframes()), "<i2"), "digit": int(path.name[0])})
    dataset = fp.from_examples(rows)
    samples = fp.collators.audio(label="digit", classes=10, pad_multiple=800)
    mel = fp.audio.LogMel(8000, size=256, hop=80, mels=40)
    frames = fp.collators.audio(spectrogram=mel, label="digit", classes=10, pad_multiple=16)
    (waves,), (features,) = (list(fp.pipe(dataset, fp.batch(len(rows)), fp.collate(collator))) for collator in (samples, frames))
    assert waves["lengths"].tolist() == [len(row["waveform"]) for row in rows]
    assert waves["waveforms"].shape[1] % 800 == 0
    assert np.abs(np.array(waves["waveforms"])).max() <= 1
    assert features["lengths"].tolist() == [1 + len(row["waveform"]) // 80 for row in rows]
    assert features["features"].shape[1:] == (features["mask"].shape[1], 40)
    values = np.array(features["features"])
    assert np.isfinite(values).all()
    loud = values.mean(axis=2)
    assert loud[np.array(features["mask"]) == 1].std() > 1  # speech rises and falls
    for collator in (samples, frames):
        group = next(iter(fp.pipe(dataset, fp.batch(16))))
        assert_the_list_agrees(collator, group)
        alone, together = collator(group[3:4]), collator(group)
        name = "waveforms" if collator is samples else "features"
        count = alone["lengths"].item()
        assert mx.array_equal(alone[name][0, :count], together[name][3, :count])

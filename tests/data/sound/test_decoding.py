"""Files of sound of all formats, and resampling; damaged and hostile files are errors that name the file."""

import struct
import tracemalloc
from contextlib import suppress
from io import BytesIO
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxfp.data.sound.decoding import decode, resample
from mlxfp.support.errors import DataError

soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed: the extra audio")
soxr = pytest.importorskip("soxr", reason="soxr is not installed: the extra audio")

SAMPLES = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75])


def wave(
    samples: bytes, *, kind: int = 1, bits: int = 16, channels: int = 1, rate: int = 8000, extended: bool = False, **more: Any
) -> bytes:
    """Write a WAV file as the specification says."""
    align = channels * bits // 8
    head = struct.pack("<HHIIHH", 0xFFFE if extended else kind, channels, rate, 0, align, bits)
    if extended:
        head += struct.pack("<HHIH", 22, bits, 0, kind) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    chunks = [(b"fmt ", head), *more.get("between", []), (b"data", samples)]
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WAVE" + body


def integers(bits: int) -> bytes:
    whole = np.round(SAMPLES * 2.0 ** (bits - 1)).clip(None, 2 ** (bits - 1) - 1).astype("<i8")
    return (whole + 128).astype("u1").tobytes() if bits == 8 else whole.view("u1").reshape(-1, 8)[:, : bits // 8].tobytes()


FORMATS = {f"{bits} bits": (integers(bits), {"bits": bits}) for bits in (8, 16, 24, 32)}
FORMATS |= {f"floats of {bits} bits": (SAMPLES.astype(f"<f{bits // 8}").tobytes(), {"kind": 3, "bits": bits}) for bits in (32, 64)}


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_all_formats_hold_the_same_sound(name: str, extended: bool):
    samples, options = FORMATS[name]
    for between in ([], [(b"LIST", b"abc"), (b"fact", b"1234")]):
        waveform, rate = decode(wave(samples, **options, extended=extended, between=between), "a.wav")
        assert (waveform.tolist(), rate, waveform.dtype) == (SAMPLES.tolist(), 8000, np.float32)
        stereo, _ = decode(wave(samples, **options, extended=extended, channels=2, between=between), "a.wav")
        assert stereo.tolist() == SAMPLES.reshape(-1, 2).mean(axis=1).tolist()


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x7FFFF000, 0xFFFFFFDB])
@pytest.mark.parametrize("size_of_file", [None, 0, 36, 0xFFFFFFFF, 0x7FFFFFFF])
@pytest.mark.parametrize("between", [[], [(b"LIST", b"data\0\0\0\0")]], ids=["plain", "list"])
@pytest.mark.parametrize("name", FORMATS)
def test_case_a10_a_wav_file_without_a_size_is_read_to_its_end(name: str, between: list[Any], size_of_file: int | None, size: int):
    """An interrupted recorder writes 0, programs that write to a pipe write the largest sizes."""
    samples, options = FORMATS[name]
    data = bytearray(wave(samples, **options, between=between))
    start = len(data) - len(samples) - len(samples) % 2
    data[start - 4 : start] = struct.pack("<I", size)
    if size_of_file is not None:
        data[4:8] = struct.pack("<I", size_of_file)
    waveform, rate = decode(bytes(data), "a.wav")
    assert (waveform[: len(SAMPLES)].tolist(), rate) == (SAMPLES.tolist(), 8000)


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("size", [0, 8, 0xFFFFFFFF, 0x7FFFFFFF])
def test_an_aiff_file_without_a_size_is_read_to_its_end(size: int, frames: bool):
    data = bytearray(encoded(np.array([1, 2, 3], np.int16), "AIFF", "PCM_16"))
    start = data.find(b"SSND") + 4
    data[start : start + 4] = struct.pack(">I", size)
    if not frames:
        start = data.find(b"COMM") + 10
        data[start : start + 4] = bytes(4)
    assert decode(bytes(data), "a.aiff")[0].tolist() == [1 / 32768, 2 / 32768, 3 / 32768]


@pytest.mark.parametrize("behind", [b"", b"LIST" + struct.pack("<I", 4) + b"INFO", b"id3 " + struct.pack("<I", 3) + b"abc\0"])
def test_a_wav_file_without_samples_is_silent(behind: bytes):
    """Chunks after an empty chunk of samples are no samples."""
    assert decode(wave(b"") + behind, "a.wav")[0].tolist() == []


def encoded(samples: np.ndarray, form: str, subtype: str | None = None, *, rate: int = 16000) -> bytes:
    file = BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def tone(hertz: int, rate: int, seconds: float = 1.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


# The format, how its samples are held, and how far they may be from what was written.
CODECS = [
    *[("WAV", kind, error) for kind, error in (("PCM_U8", 8e-3), ("PCM_16", 4e-5), ("PCM_24", 2e-7), ("PCM_32", 2e-7), ("FLOAT", 0))],
    *[("AIFF", "PCM_16", 4e-5), ("FLAC", "PCM_16", 4e-5), ("FLAC", "PCM_24", 2e-7), ("OGG", "VORBIS", 0.1), ("OGG", "OPUS", 0.1)],
    ("MP3", "MPEG_LAYER_III", 0.1),
]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
@pytest.mark.parametrize(("form", "subtype", "error"), CODECS)
def test_every_codec_gives_the_sound_that_was_written(form: str, subtype: str, error: float, rate: int, channels: int):
    if subtype == "OPUS" and rate == 44100:
        pytest.skip("Opus has no such rate")
    written = np.stack([tone(440, rate), 0.5 * tone(440, rate)][:channels], axis=1)
    waveform, found = decode(encoded(written, form, subtype, rate=rate), "a")
    assert (waveform.dtype, found, len(waveform)) == (np.float32, rate, rate)
    inner = slice(500, -500) if error > 0.01 else slice(None)  # codecs for music begin and end softly
    assert np.abs(waveform - written.mean(axis=1))[inner].max() <= error


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=20), st.sampled_from(["WAV", "FLAC", "AIFF"]))
def test_16_bit_samples_are_divided_by_32768(samples: list[int], form: str):
    written = np.array(samples, np.int16)
    assert decode(encoded(written, form, "PCM_16"), "a")[0].tolist() == (written / 32768).tolist()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"ID3 is not enough", "Format not recognised|.*[Ff]ile.*"),
        (b"not a sound", "Format not recognised"),
        (wave(integers(16), channels=0), "Channel count is zero|Error.*"),
        (wave(integers(16))[:36], ".*[Nn]o 'data' chunk.*|.*malformed.*"),
        (wave(integers(16))[:30], ".+"),
    ],
)
def test_what_is_no_file_of_sound_says_why(data: bytes, reason: str):
    with pytest.raises(
        DataError, match=rf"A file cannot be decoded as sound: ({reason}), in 'a\.wav'\. Copy the file again, convert the file"
    ):
        decode(data, "a.wav")


def test_a_rate_beyond_all_converters_is_damage():
    with pytest.raises(
        DataError, match=r"got 2,000,000,000 samples per second, at most 768,000 are possible, in 'a\.wav'\. Copy the file again"
    ):
        decode(wave(integers(16), rate=2_000_000_000), "a.wav")


@pytest.mark.parametrize(("form", "subtype", "error"), CODECS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_that_ends_early_is_an_error(form: str, subtype: str, error: float, share: float):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (32000, 2)).astype(np.float32)
    whole = encoded(noise, form, subtype)
    with pytest.raises(DataError, match=r"A file (ends early: .+|cannot be decoded as sound: .+), in 'a'\. Copy the file again"):
        decode(whole[: int(len(whole) * share)], "a")


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_damaged_page_of_ogg_is_an_error(subtype: str, share: float):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (32000, 2)).astype(np.float32)
    damaged = bytearray(encoded(noise, "OGG", subtype))
    place = int(len(damaged) * share)
    damaged[place] ^= 1  # libsndfile leaves the page out, and says nothing
    with pytest.raises(
        DataError, match=r"A file (ends early: the page at byte [\d,]+ is damaged|cannot be decoded as sound: .+), in 'a'\."
    ):
        decode(bytes(damaged), "a")
    assert len(decode(encoded(noise, "OGG", subtype) + b"behind the end", "a")[0])


def test_sizes_that_only_the_headers_of_other_parts_get_wrong_do_no_harm():
    whole = bytearray(wave(integers(16), between=[(b"LIST", b"data\xff\xff\xff\x7f")]))
    whole[4:8] = b"\xff\xff\xff\x7f"
    assert len(decode(bytes(whole), "a.wav")[0]) == len(SAMPLES)


def with_declared(flac: bytes, samples: int) -> bytes:
    """Let the header of a FLAC file declare so many samples."""
    head = int.from_bytes(flac[18:26], "big") >> 36 << 36 | samples
    return flac[:18] + head.to_bytes(8, "big") + flac[26:]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (0, r"A file declares no length, probably because it was written to a pipe, in 'a\.flac'\. Convert the file with ffmpeg"),
        (
            2**35,
            r"A file declares too much sound for one row: 34,359,738,368 samples in each of 1 channels, at most 268,435,456 over all",
        ),
        (2**28, "A file (ends early|cannot be decoded as sound)"),
    ],
)
def test_a_declared_length_needs_no_memory(declared: int, message: str):
    data = with_declared(encoded(tone(440, 16000), "FLAC", "PCM_16"), declared)
    tracemalloc.start()
    with pytest.raises(DataError, match=message):
        decode(data, "a.flac")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_long_file_is_read_in_parts_without_a_seam():
    samples = np.random.default_rng(0).integers(-32768, 32767, (700_000, 2), np.int16)
    waveform, _ = decode(encoded(samples, "WAV", "PCM_16"), "a.wav")
    assert np.array_equal(waveform, (samples / 32768).mean(axis=1).astype(np.float32))


def test_floats_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match=r"A file has samples that are not finite: got nan or inf, in 'a\.wav'"):
        decode(wave(np.array([0.5, np.nan], "<f4").tobytes(), kind=3, bits=32), "a.wav")


@given(st.sampled_from([wave(samples, **options) for samples, options in FORMATS.values()]), st.data())
def test_a_damaged_file_is_read_or_named(whole: bytes, data: st.DataObject):
    damaged = bytearray(whole)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)):
        damaged[place % len(damaged)] = byte
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    with suppress(DataError):
        waveform, rate = decode(bytes(damaged), "a.wav")
        assert waveform.dtype == np.float32
        assert rate > 0


def test_a_large_size_in_a_header_needs_no_memory():
    data = bytearray(wave(integers(16)))
    data[40:44] = b"\xfe\xff\xfe\x7f"
    tracemalloc.start()
    with pytest.raises(DataError, match="A file ends early: got 12 bytes of sound but the header declares 2,147,418,110"):
        decode(bytes(data), "a.wav")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


RATES = st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000])


@given(RATES, RATES, st.integers(0, 400), st.integers(0, 9))
def test_resampling_is_that_of_soxr_whatever_came_before(old: int, new: int, count: int, seed: int):
    samples = np.random.default_rng(seed).uniform(-1, 1, count).astype(np.float32)
    found = resample(samples, old, new, "a.wav")
    assert found.dtype == np.float32
    assert abs(len(found) - count * new / old) <= 1
    assert np.array_equal(found, soxr.resample(samples, old, new, quality="HQ") if old != new and count else samples)


def test_threads_resample_side_by_side():
    samples = [np.random.default_rng(seed).uniform(-1, 1, 20_000).astype(np.float32) for seed in range(8)]
    expected = [soxr.resample(each, 8000, 16000, quality="HQ") for each in samples]
    found: list[Any] = [None] * len(samples)

    def work(place: int) -> None:
        for _ in range(20):
            found[place] = resample(samples[place], 8000, 16000, "a.wav")

    threads = [Thread(target=work, args=(place,)) for place in range(len(samples))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_tone_keeps_its_pitch_and_one_that_is_too_high_goes():
    inner = slice(500, -500)
    np.testing.assert_allclose(resample(tone(440, 44100), 44100, 16000, "a")[inner], tone(440, 16000)[inner], atol=1e-3)
    assert np.abs(resample(tone(11000, 44100), 44100, 16000, "a")[inner]).max() < 1e-3


def test_a_low_rate_does_not_fill_the_memory():
    with pytest.raises(
        DataError, match=r"too much sound for one row: 10,000 samples at 1 per second, resampled to 48,000 per second, would exceed 268"
    ):
        resample(np.zeros(10_000, np.float32), 1, 48000, "a.wav")


@given(
    samples=st.lists(st.integers(-32768, 32767), max_size=12),
    channels=st.integers(1, 3),
    changes=st.dictionaries(st.integers(0, 43), st.integers(0, 255), max_size=2),
    cut=st.integers(0, 30),
)
def test_a_plain_wav_file_has_the_samples_that_libsndfile_finds(samples, channels, changes, cut):
    data = bytearray(wave(np.array(samples[: len(samples) // channels * channels], "<i2").tobytes(), channels=channels))
    for place, value in changes.items():
        data[place] = value
    assume(any(data[40:44]) or len(data) == 44)  # libsndfile reads no samples of a file that declares none
    with suppress(DataError):
        waveform, rate = decode(bytes(data[: len(data) - cut]), "a.wav")
        with soundfile.SoundFile(BytesIO(data[: len(data) - cut])) as file:
            expected = file.read(dtype="float32", always_2d=True).mean(axis=1)
            assert (waveform.tolist(), rate) == (expected.tolist(), file.samplerate)

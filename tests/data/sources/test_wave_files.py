"""WAV files of all formats that hold plain samples, and resampling; damaged and hostile headers are errors that name the file."""

import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfp.core.errors import DataError
from mlxfp.data.sources.wave_files import read_wave, resample

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
        waveform, rate = read_wave(wave(samples, **options, extended=extended, between=between), "a.wav")
        assert (waveform.tolist(), rate, waveform.dtype) == (SAMPLES.tolist(), 8000, np.float32)
        stereo, _ = read_wave(wave(samples, **options, extended=extended, channels=2, between=between), "a.wav")
        assert stereo.tolist() == SAMPLES.reshape(-1, 2).mean(axis=1).tolist()


def test_a_file_that_was_written_to_a_pipe_goes_on_to_its_end():
    data = bytearray(wave(integers(16)))
    data[40:44] = b"\xff" * 4
    assert read_wave(bytes(data), "a.wav")[0].tolist() == pytest.approx(SAMPLES.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"RIFX" + wave(integers(16))[4:], r"it begins with b'RIFX', not with RIFF and WAVE"),
        (wave(integers(16), kind=85), r"its samples are compressed \(format 85\)"),
        (wave(integers(16), bits=48), "its samples have 48 bits"),
        (wave(integers(16), kind=3), "its samples have 16 bits"),
        (wave(integers(16), channels=0), "it has 0 channels of 8,000 samples per second"),
        (wave(integers(16), rate=0), "it has 1 channels of 0 samples per second"),
        (wave(integers(16), rate=2**32 - 1), "it has 1 channels of 4,294,967,295 samples per second"),
        (wave(integers(16))[:36], "it has no samples"),
        (wave(integers(16))[:40], "it ends inside its header"),
        (wave(integers(16))[:12] + wave(integers(16))[36:], "its samples come before their format"),
    ],
)
def test_a_file_that_is_no_wave_file_says_why(data: bytes, reason: str):
    with pytest.raises(DataError, match=rf"A file cannot be read as WAV: {reason}, in 'a\.wav'\. Convert it to samples of 16 bits"):
        read_wave(data, "a.wav")


def test_floats_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match=r"A file has samples that are not finite: got nan or inf, in 'a\.wav'"):
        read_wave(wave(np.array([0.5, np.nan], "<f4").tobytes(), kind=3, bits=32), "a.wav")


@given(st.sampled_from([wave(samples, **options) for samples, options in FORMATS.values()]), st.data())
def test_a_damaged_file_is_read_or_named(whole: bytes, data: st.DataObject):
    damaged = bytearray(whole)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)):
        damaged[place % len(damaged)] = byte
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    with suppress(DataError):
        waveform, rate = read_wave(bytes(damaged), "a.wav")
        assert waveform.dtype == np.float32
        assert rate > 0


def test_a_large_size_in_a_header_needs_no_memory():
    data = bytearray(wave(integers(16)))
    data[40:44] = b"\xfe\xff\xff\xff"
    tracemalloc.start()
    with pytest.raises(DataError, match="A file ends early: got 12 bytes of sound where its header says 4,294,967,294"):
        read_wave(bytes(data), "a.wav")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


RATES = st.sampled_from([1, 2, 3, 8000, 11025, 16000, 22050, 44100, 48000])


@example(44100, 16000, 4000, 0)
@given(RATES, RATES, st.integers(0, 400), st.integers(0, 9))
def test_resampling_is_that_of_scipy(old: int, new: int, count: int, seed: int):
    signal = pytest.importorskip("scipy.signal", reason="the reference for resampling is scipy")
    samples = np.random.default_rng(seed).uniform(-1, 1, min(count, 400 if new <= 3 * old else 3)).astype(np.float32)
    found = resample(samples, old, new)
    assert (found.dtype, len(found)) == (np.float32, -(-len(samples) * new // old))
    if old == new or not len(samples):
        assert np.array_equal(found, samples)
    else:
        np.testing.assert_allclose(found, signal.resample_poly(samples.astype(np.float64), new, old), atol=1e-6)


def test_a_tone_keeps_its_pitch_and_one_that_is_too_high_goes():
    def tone(hertz: int, rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)

    inner = slice(500, -500)
    np.testing.assert_allclose(resample(tone(440, 44100), 44100, 16000)[inner], tone(440, 16000)[inner], atol=2e-3)
    assert np.abs(resample(tone(11000, 44100), 44100, 16000)[inner]).max() < 2e-2

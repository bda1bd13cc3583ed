"""memory: the peak memory of streaming must not depend on the file size."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.inputs import natural_text, tokenizers
from benchmarks.measuring import Row

_STREAM = """
import pathlib, resource, sys
import mlxfp as fp

def peak():  # in bytes; on Linux, getrusage's peak is inherited from the parent process
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

fp.runtime.use_fast_blas()
import mlx.core, pyarrow.json, tokenizers
before = peak()
tokenizer = fp.load_tokenizer(sys.argv[2])
batches = fp.pipe(
    fp.read_jsonl(sys.argv[1]), fp.tokenize(tokenizer, max_length=128), fp.batch(32),
    fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, pad_multiple=32)),
)
rows = sum(len(batch["input_ids"]) for batch in batches)
print(peak() - before, rows)
"""


def rows(*, small: bool) -> list[Row]:
    """Stream 200 MB and 800 MB of JSON Lines through tokenize and batch in fresh processes, and compare the peaks without imports."""
    sizes = (5, 20) if small else (200, 800)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, files = Path(folder, "tokenizer"), [Path(folder, f"{size}.jsonl") for size in sizes]
        lines = [json.dumps({"id": 1, "text": text}) + "\n" for text in natural_text(sizes[0] * 200_000)]
        for file, size in zip(files, sizes, strict=True):
            _write(file, lines, size * 1_000_000)
        next(iter(tokenizers().values())).save(tokenizer)
        first, second = (_peak(file, tokenizer) for file in files)
    shown = (f"{second:.0f} MB for {sizes[1]} MB", f"{first:.0f} MB for {sizes[0]} MB")
    return [
        Row("memory", "stream JSON lines, tokenize, batch: growth of the peak", *shown, second / first, 1.10, "at most"),
        Row("memory", "the same: peak above import, MB", *shown, second, 400, "at most"),
    ]


def _peak(file: Path, tokenizer: Path) -> float:
    command = [sys.executable, "-c", _STREAM, str(file), str(tokenizer)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]) / 1e6


def _write(file: Path, lines: Sequence[str], size: int) -> None:
    with file.open("w") as out:
        while out.tell() < size:
            out.writelines(lines)

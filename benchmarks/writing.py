"""write: from JSON Lines to files of tokens with two processes, compared with datasets; also on Ray, and after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

import mlxfp as fp
from benchmarks.inputs import natural_text, tokenizers
from benchmarks.measuring import Row, best, installed

_ROWS = 20_000  # rows per file

_WRITE = """
import sys
import mlxfp as fp
from benchmarks.writing import recipe, rows_per_file

if __name__ == "__main__":
    fp.write(recipe(sys.argv[1], sys.argv[2]), sys.argv[3], rows_per_file=rows_per_file(), on=fp.runners.processes(2))
"""


def rows_per_file() -> int:
    """Return the number of rows per file."""
    return _ROWS


def recipe(path: str, tokenizer: str) -> fp.Dataset[Any]:
    """Return the pipeline from JSON Lines to token ids, through a template."""
    clean = fp.template("{title}: {text}")
    return fp.pipe(fp.read_jsonl(path), clean, fp.tokenize(fp.load_tokenizer(tokenizer)), fp.select_columns(["input_ids"]))


def rows(*, small: bool) -> list[Row]:
    """Write 200 MB with two processes, compared with datasets; write with Ray; and continue a killed run."""
    size = 4_000_000 if small else 200_000_000
    texts = natural_text(min(size, 20_000_000))
    lines = [json.dumps({"title": f"Line {place}", "text": text}) for place, text in enumerate(texts)]
    with TemporaryDirectory() as folder:
        path, tokenizer = Path(folder, "rows.jsonl"), Path(folder, "tokenizer")
        with path.open("w", encoding="utf-8") as file:
            while file.tell() < size:
                file.writelines(f"{line}\n" for line in lines)
        list(tokenizers().values())[1].save(tokenizer)
        work = f"{path.stat().st_size / 1e6:.0f} MB of JSON lines to Arrow files of tokens"
        ours = partial(_ours, path, tokenizer, Path(folder, "ours"), fp.runners.processes(2))
        return [
            _against_datasets(work, ours, partial(_datasets, path, tokenizer, Path(folder, "theirs"))),
            _on_ray(work, path, tokenizer, Path(folder, "ray"), ours),
            _resumed(path, tokenizer, Path(folder, "killed"), 1 if small else 5),
        ]


def _against_datasets(work: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Row:
    if not installed("datasets"):
        return Row("write", f"{work}, 2 processes", "-", "datasets: not installed", None, 8)
    mine, other = best([ours, theirs], repeats=3)
    return Row("write", f"{work}, 2 processes", f"{mine:.1f} s", f"datasets {other:.1f} s", other / mine, 8)


def _ours(path: Path, tokenizer: Path, out: Path, on: fp.runners.Runner) -> None:
    shutil.rmtree(out, ignore_errors=True)
    fp.write(recipe(str(path), str(tokenizer)), out, rows_per_file=_ROWS, on=on)


def _datasets(path: Path, tokenizer: Path, out: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    shutil.rmtree(out, ignore_errors=True)
    with TemporaryDirectory() as cache:
        rows = datasets.Dataset.from_json(str(path), cache_dir=cache)
        encode = partial(_encode, str(tokenizer / "tokenizer.json"), {})
        rows.map(encode, batched=True, num_proc=2, remove_columns=rows.column_names).save_to_disk(out)


def _encode(file: str, kept: dict[str, Any], columns: dict[str, list[str]]) -> dict[str, Any]:
    from tokenizers import Tokenizer

    if not kept:  # once per process
        kept["tokenizer"] = Tokenizer.from_file(file)
    texts = [f"{title}: {text}" for title, text in zip(columns["title"], columns["text"], strict=True)]
    return {"input_ids": [encoded.ids for encoded in kept["tokenizer"].encode_batch_fast(texts)]}


def _on_ray(work: str, path: Path, tokenizer: Path, out: Path, processes: Callable[[], Any]) -> Row:
    if not installed("ray"):
        return Row("write-ray", f"{work}, Ray", "-", "ray: not installed", None, 0.6)
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        mine, other = best([partial(_ours, path, tokenizer, out, fp.runners.ray()), processes], repeats=3)
    finally:
        ray.shutdown()
    return Row("write-ray", f"{work}, Ray", f"{mine:.1f} s", f"2 processes {other:.1f} s", other / mine, 0.6)


def _resumed(path: Path, tokenizer: Path, out: Path, repeats: int) -> Row:
    """Time a whole run and the rest of a run killed after half of the files, each in a fresh process.

    The file is eight times as large as in the other lines, because starting Python and two workers takes as long as writing 200 MB.
    """
    lines = path.read_bytes()
    with path.open("ab") as file:
        file.writelines([lines] * 7)
    work = f"{path.stat().st_size / 1e6:.0f} MB of JSON lines to Arrow files of tokens"
    command = [sys.executable, "-c", _WRITE, str(path), str(tokenizer), str(out)]
    whole, rest = (min(times) for times in zip(*(_whole_and_rest(command, out) for _ in range(repeats)), strict=True))
    return Row("write-resume", f"{work}, killed at half", f"{rest:.1f} s", f"whole {whole:.1f} s", rest / whole, 0.65, "at most")


def _whole_and_rest(command: list[str], out: Path) -> tuple[float, float]:
    shutil.rmtree(out, ignore_errors=True)
    whole = _seconds(command)
    files = len(list(out.glob("*.arrow")))
    shutil.rmtree(out)
    killed = subprocess.Popen(command, start_new_session=True)
    while len(list(out.glob("*.arrow"))) < files / 2:
        sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    return whole, _seconds(command)


def _seconds(command: list[str]) -> float:
    began = perf_counter()
    subprocess.run(command, check=True)
    return perf_counter() - began

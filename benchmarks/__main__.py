"""Run every benchmark, print the table and write it as JSON: `python -m benchmarks [NAME ...] [--json FILE]`."""

import argparse
import json
import os
import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

from mlxfp.runtime import report, use_fast_blas

use_fast_blas()  # before MLX is imported

NAMES = [path.stem for path in sorted(Path(__file__).parent.glob("*.py")) if path.stem not in ("__init__", "__main__", "measuring")]
PEERS = ("mlx", "numpy", "pyarrow", "tokenizers", "torch", "datasets", "grain", "mlx-data")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="where to write the table (default benchmarks.json)")
    options = parser.parse_args()
    machine = report()
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {machine.backend}")
    print(f"BLAS {Path(machine.blas).name}")
    print(", ".join(f"{name} {_version(name)}" for name in PEERS), end="\n\n")
    print(f"| {'id':14} | {'work':64} | {'ours':26} | {'peer':32} | {'ratio':>7} | bar |\n|---|---|---|---|---|---|")
    rows = []
    for name in options.names or NAMES:
        for row in import_module(f"benchmarks.{name}").rows():
            rows.append(row)
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
            verdict = {True: "met", False: "MISSED", None: "no peer"}[row.met]
            bar = f"{row.sense} {row.bar:g}: {verdict}"
            print(f"| {row.id:14} | {row.work:64} | {row.ours:26} | {row.peer:32} | {ratio:>7} | {bar} |", flush=True)
    options.json.write_text(json.dumps([{**attrs.asdict(row), "met": row.met} for row in rows], indent=1))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    main()

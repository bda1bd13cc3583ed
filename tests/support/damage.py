"""Drawn damage of files, for laws that run in a child process because a crash is possible."""

import os
import random
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with one drawn change: flipped bits, a changed number, zeros, a removed part, a repeated part, or a shorter file."""
    data, at = bytearray(content), chance.randrange(len(content))
    size = chance.choice([1, 2, 4, 8])
    match chance.randrange(7):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at : at + size] = chance.randbytes(size)
        case 2:
            number = chance.choice([-9, -1, 0, 1, 127, 10**6, 2**31 - 1, -(2**31), 2**40])
            data[at - at % 4 : at - at % 4 + 8] = number.to_bytes(8, "little", signed=True)
        case 3:
            data[at : at + 8 * size] = bytes(8 * size)
        case 4:
            del data[at : at + size]
        case 5:
            data[at:at] = data[at : at + size]
        case _:
            del data[at:]
    return bytes(data)


def run_child(code: str, folder: Path) -> str:
    """Run code in a fresh interpreter with `folder` as its argument, and return the output. A crash fails with the last lines."""
    environment = dict(os.environ, PYTHONFAULTHANDLER="1")
    child = subprocess.run([sys.executable, "-c", dedent(code), str(folder)], capture_output=True, text=True, env=environment, check=False)
    assert child.returncode == 0, f"exit status {child.returncode}\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return child.stdout

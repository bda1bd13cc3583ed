"""Python code for error messages. Users paste the code to rewrite the CSV files of a competition."""

import re
from collections.abc import Sequence
from pathlib import Path

from mlxfp.app.kaggle.specs.reading import delimiter_of

REWRITING_CODE = re.compile(r"\n(import .*\nframe\.to_csv\([^\n]*)", re.DOTALL)  # the lines of `rewriting_code`, one block per message


def rewriting_code(paths: Sequence[Path], change: str, *, modules: str = "os, pandas", encoding: str = "utf-8") -> str:
    """Return a line break and Python lines that change CSV files.

    The argument `change` is code that changes the data frame `frame`. All cells are texts, so codes such as 007 keep the zeros. The
    original file is first renamed to `<name>.original`, unless a file with the new name exists.

    >>> print(rewriting_code([Path("train.csv")], "frame = frame[frame['y'] != '']"))
    <BLANKLINE>
    import os, pandas
    frame = pandas.read_csv('train.csv', dtype=str, keep_default_na=False)
    frame = frame[frame['y'] != '']
    os.path.exists('train.csv.original') or os.rename('train.csv', 'train.csv.original')
    frame.to_csv('train.csv', index=False)
    """
    lines, encoded = [f"import {modules}"], "" if encoding == "utf-8" else f", encoding={encoding!r}"
    for file in paths:
        path, mark = str(file), delimiter_of(file)
        options = ("" if mark == "," else f", sep={mark!r}") + encoded
        lines += [
            f"frame = pandas.read_csv({path!r}{options}, dtype=str, keep_default_na=False)",
            change,
            f"os.path.exists({f'{path}.original'!r}) or os.rename({path!r}, {f'{path}.original'!r})",
            f"frame.to_csv({path!r}{options}, index=False)",
        ]
    return "".join(f"\n{line}" for line in lines)

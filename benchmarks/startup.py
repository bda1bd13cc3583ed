"""import: the time of `import mlxfp`, and the packages loaded by the import."""

import subprocess
import sys

from benchmarks.measuring import Row, best


def rows(*, small: bool) -> list[Row]:
    """Start an interpreter with and without the import, and compare the times in milliseconds."""
    with_it, without = best([lambda: _python("import mlxfp"), lambda: _python("pass")], repeats=15)
    extra = (with_it - without) * 1000
    heavy = _python("import sys, mlxfp; print(*{'mlx', 'pyarrow', 'numpy'} & set(sys.modules))")
    loads = f", loads {heavy}" if heavy else ", loads no package"
    return [Row("import", "import mlxfp above a bare interpreter", f"{extra:.1f} ms{loads}", "-", extra, 40, "at most")]


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

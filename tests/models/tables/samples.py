"""Small tables, and networks made for them."""

import mlx.core as mx
import numpy as np

import mlxfp as fp

KINDS = {"class": 3, "labels": 2, "value": 1}


def table(count, *, seed=0):
    """Rows with two columns of numbers, of which one lacks values, and two of categories."""
    random = np.random.default_rng(seed)
    size = random.normal(5, 3, count)
    return fp.from_table(
        {
            "size": size,
            "age": [None if place % 5 == 2 else float(value) for place, value in enumerate(random.integers(1, 60, count))],
            "sex": [("f", "m")[value] for value in random.integers(0, 2, count)],
            "deck": [None if value == 4 else "ABCD"[value] for value in random.integers(0, 5, count)],
            "price": size * 2 + random.normal(0, 0.1, count),
        }
    )


ROWS = table(40)
COLUMNS = fp.models.fit_columns(ROWS, numbers=["size", "age"], categories=["sex", "deck"], bins=5)


def realmlp(kind="class", *, outputs=None, columns=COLUMNS, seed=0, examples=None, **options):
    target = fp.models.TableTarget(kind, outputs or KINDS[kind])
    options = {"hidden_sizes": (8, 6), **options}
    return fp.models.RealMLP(fp.models.RealMLPConfig(columns=columns, target=target, **options), seed=seed, examples=examples)


def tabm(kind="class", *, outputs=None, columns=COLUMNS, seed=0, **options):
    target = fp.models.TableTarget(kind, outputs or KINDS[kind])
    return fp.models.TabM(fp.models.TabMConfig(columns=columns, target=target, **{"hidden_size": 8, "members": 4, **options}), seed=seed)


def arrays(rows=ROWS, columns=COLUMNS):
    """The arrays of rows as a network reads them."""
    from mlxfp.core.chunks import one_chunk
    from mlxfp.core.datasets import to_table

    return {name: mx.array(array) for name, array in columns.arrays(one_chunk(to_table(rows))).items()}

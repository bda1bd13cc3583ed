"""datasets: a resumed stream loses rows of the shuffle buffer, as the docstring of `IterableDataset.state_dict` says."""

from collections import Counter
from itertools import islice

import datasets


def stream():
    return datasets.Dataset.from_dict({"x": range(24)}).to_iterable_dataset().shuffle(seed=0, buffer_size=5)


before, after = stream(), stream()
seen = [row["x"] for row in islice(before, 10)]
after.load_state_dict(before.state_dict())
counts = Counter(seen + [row["x"] for row in after])
print("datasets", datasets.__version__)
print("lost:", [row for row in range(24) if not counts[row]], "twice:", [row for row in range(24) if counts[row] > 1])

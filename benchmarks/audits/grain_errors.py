"""grain: a StopIteration in a map function in a worker process ends the data of the worker without an error. No public issue is known."""

import grain


def first_word(row):
    return row if row != 7 else next(iter([]))  # an empty row


if __name__ == "__main__":
    print("grain", grain.__version__)
    rows = grain.MapDataset.source(range(24)).map(first_word).batch(2).to_iter_dataset()
    rows = rows.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    numbers = sorted(int(row) for batch in rows for row in batch)
    print("lost:", sorted(set(range(24)) - set(numbers)), "repeated:", sorted({row for row in numbers if numbers.count(row) > 1}))

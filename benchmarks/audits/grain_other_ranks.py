"""grain: the state of two ranks, continued on one rank, loses and repeats rows: github.com/AI-Hypercomputer/maxtext/issues/1760."""

import grain


def batches(rank, ranks):
    rows = grain.MapDataset.source(range(48))[rank::ranks].seed(0).shuffle().batch(8 // ranks)
    return iter(rows.to_iter_dataset())


print("grain", grain.__version__)
ranks = [batches(rank, 2) for rank in range(2)]
done = {int(row) for _ in range(3) for iterator in ranks for row in next(iterator)}
continued = batches(0, 1)
continued.set_state(ranks[0].get_state())
rest = [int(row) for batch in continued for row in batch]
print("lost:", sorted(set(range(48)) - done - set(rest)), "repeated:", sorted(done & set(rest)))

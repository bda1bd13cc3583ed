"""Ray Data: with two map tasks, two runs of a pipeline differ, unless `preserve_order` is set, as `ExecutionOptions` says."""

import time

import ray


def slow(row):
    time.sleep(1 if row["id"] < 4 and ROUND else 0)
    return row


print("ray", ray.__version__)
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
rows = ray.data.range(16, override_num_blocks=4)
for ROUND in range(2):
    mapped = rows.map(slow, compute=ray.data.TaskPoolStrategy(size=2))
    print(f"run {ROUND}:", [batch["id"].tolist() for batch in mapped.iter_batches(batch_size=4)])

"""Runs with several seeds: train the same model with each seed on the same folds, and average the predictions."""

from collections.abc import Iterator
from functools import partial

from mlxfp.app.runs.auto.choosing import averaged
from mlxfp.app.runs.auto.members import Member
from mlxfp.app.runs.auto.results import RunMember, finish, planned, told_before
from mlxfp.app.runs.events import RunEvent
from mlxfp.app.runs.plans import Plan


def run_seeds(plan: Plan, run_member: RunMember) -> Iterator[RunEvent]:
    """Train the same model with each seed, submit the mean of the predictions, and yield the events. An interrupted run is continued."""
    if (yield from told_before(plan)):
        return
    members = seeded(plan.training.seed, plan.seeds)
    for member in members:
        yield from run_member(planned(plan, member))
    by = partial(averaged, plan.metric, tune=plan.threshold)
    yield from finish(plan, [member.name for member in members], by, {})


def seeded(first: int, count: int) -> tuple[Member, ...]:
    """Return one model for each seed of a run with several seeds.

    >>> [(member.name, member.values) for member in seeded(3, 2)]
    [('seed-3', {'training': {'seed': 3, 'seeds': 1}}), ('seed-4', {'training': {'seed': 4, 'seeds': 1}})]
    """
    return tuple(Member(f"seed-{seed}", {"training": {"seed": seed, "seeds": 1}}) for seed in range(first, first + count))

"""The command `mlxfp tune`: search for better values of a configuration."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mlxfp.app.cli.configuring import add_code, add_config, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx_quietly, warn_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfp.app.runs import TrialEnded, Tuned


def add(commands: Commands) -> None:
    """Add `tune`."""
    example = (
        "mlxfp tune titanic --data data/titanic model.name=lightgbm --trials 30 --minutes 10\n"
        "mlxfp tune run.yaml --trials 30 --vary model.dropout=null --vary 'model.size={choice: [tiny, mini]}'"
    )
    tune = add_command(commands, "tune", _tune, example=example)
    add_config(tune)
    tune.add_argument("--trials", metavar="N", type=int, help="the maximum number of trials, including trials of earlier calls")
    tune.add_argument(
        "--minutes",
        metavar="M",
        type=float,
        help="end the search after M minutes; the next call continues the running trial (the first trial always ends)",
    )
    tune.add_argument(
        "--vary",
        metavar="KEY={KIND: [...]}",
        action="append",
        default=[],
        help="the range of an option: float, log or int with lowest and highest value, or choice; KEY=null keeps the option fixed",
    )
    add_code(tune)


def _tune(options: Namespace) -> int:
    """Search for better option values and write the best configuration. If the command runs again, the search continues."""
    start_mlx_quietly()
    from mlxfp.app.runs import Noted, TrialEnded, Tuned, tune

    config = loaded(options, known_names()).config
    events = tune(config, trials=options.trials, minutes=options.minutes, vary=options.vary, code=options.code)
    show = warn_once()  # several trials may repeat a message
    for event in events:
        match event:
            case Noted(message=message):
                show(message)
            case TrialEnded():
                say(_of_trial(event))
            case Tuned():
                say("\n".join(_outcome(event)))
    return 0


def _of_trial(event: "TrialEnded") -> str:
    values = " ".join(f"{name}={_short(value)}" for name, value in event.values.items()) if event.trial else "the unchanged configuration"
    ended = f"{event.score:.4f}" if event.score is not None else event.outcome + (f" ({event.reason})" if event.reason else "")
    return f"{event.folder}: trial {event.trial}: {ended}: {values}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _outcome(event: "Tuned") -> "Iterator[str]":
    yield (
        f"{event.folder}: the best of {event.trials} trials is {event.trial}: {event.metric} {event.score:.4f}, against {event.given:.4f} "
        "of the unchanged configuration. The score is too optimistic, because the trial was chosen on these folds."
    )
    yield f"{event.config} is the best configuration: mlxfp run {event.config}"

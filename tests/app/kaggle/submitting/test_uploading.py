"""Uploads against a fake client that gives the server's replies; nothing here reaches a network."""

import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Reply
from typing import Any

import pytest

from mlxfp.app.kaggle.submitting.uploading import Verdict, credentials_in, submit
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, MissingFileError

SubmissionStatus = Enum("SubmissionStatus", "PENDING COMPLETE ERROR")  # as the client spells it


class HTTPError(Exception):
    """What the client raises for a reply other than success."""

    response = Reply(text='{"message":"You must accept the rules"}', status_code=403)


class Server:
    """Answers an upload with `reply`, and each question about it with the next of `states`; an exception is raised."""

    def __init__(self, reply: Any, *states: Any) -> None:
        self.reply, self.states, self.calls = reply, list(states), []

    def competition_submit(self, file_name: str, message: str, competition: str, quiet: bool) -> Any:
        self.calls.append((file_name, message, competition))
        return self._give(self.reply)

    def competition_submissions(self, competition: str) -> Any:
        return self._give(self.states.pop(0) if len(self.states) > 1 else self.states[0])

    def _give(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value


ARRIVED = Reply(ref=7, message="Successfully submitted to Titanic")
OLDER = Reply(ref=6, status=SubmissionStatus.COMPLETE, public_score="0.1", error_description=None)


def state(status: str, score: str = "", reason: str | None = None) -> list[Any]:
    return [None, Reply(ref=7, status=SubmissionStatus[status], public_score=score, error_description=reason), OLDER]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "submission.csv"
    file.write_text("PassengerId,Survived\n892,0\n")
    return file


LOOK = "Check https://www.kaggle.com/competitions/titanic/submissions before sending again, because the file may have arrived."
NEW_TOKEN = "Kaggle does not accept the credentials. Create a new token at https://www.kaggle.com/settings/api."
CASES = {
    "scored at once": (Server(ARRIVED, state("COMPLETE", "0.77511")), Verdict("complete", "The score is 0.77511.", 0.77511)),
    "scored later": (
        Server(ARRIVED, [OLDER], None, state("PENDING"), ConnectionError("reset"), state("COMPLETE", "0.5")),
        Verdict("complete", "The score is 0.5.", 0.5),
    ),
    "no public score": (Server(ARRIVED, state("COMPLETE")), Verdict("complete", "The submission was accepted.")),
    "refused content": (
        Server(ARRIVED, state("ERROR", reason="Submission must have 418 rows")),
        Verdict("error", "The submission could not be scored: Submission must have 418 rows"),
    ),
    "no reason": (Server(ARRIVED, state("ERROR")), Verdict("error", "The submission could not be scored: no reason was given")),
    "still waiting": (
        Server(ARRIVED, state("PENDING")),
        Verdict("pending", "Submission 7 of titanic has arrived. There is no score yet."),
    ),
    "cannot ask": (
        Server(ARRIVED, ConnectionError("reset")),
        Verdict("pending", "Submission 7 of titanic has arrived. The score could not be requested: ConnectionError: reset"),
    ),
    "no network": (Server(ConnectionError("unreachable")), Verdict("failed", f"The upload failed: ConnectionError: unreachable. {LOOK}")),
    "rules not accepted": (
        Server(HTTPError("403 Client Error")),
        Verdict(
            "failed",
            'The upload failed: HTTPError: 403 Client Error: {"message":"You must accept the rules"}. '
            "Accept the rules first, at https://www.kaggle.com/competitions/titanic/rules. The competition may also have ended.",
        ),
    ),
    "no credentials": (Server(SystemExit(1)), Verdict("failed", f"The upload failed: SystemExit: 1. {NEW_TOKEN}")),
    "upload broken off": (
        Server(Reply(ref=0, message="Could not submit to competition")),
        Verdict("failed", "The upload was refused: Could not submit to competition"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_whatever_the_server_says_is_a_verdict(path: Path, name: str):
    server, verdict = CASES[name]
    assert submit(path, "titanic", message="try", yes=True, client=server, wait=0.05, poll=0.001) == verdict
    assert server.calls == [(str(path), "try", "titanic")]


def test_nothing_is_sent_without_a_yes(path: Path):
    server = Server(ARRIVED, state("COMPLETE", "1"))
    assert submit(path, "titanic", message="try", yes=False, client=server).status == "not sent"
    assert server.calls == []


def test_without_credentials_the_client_is_not_even_imported(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    found = submit(path, "titanic", message="try", yes=True)
    assert found.status == "failed"
    assert found.message.startswith("There are no credentials. Set KAGGLE_API_TOKEN")


@pytest.mark.parametrize("signs_in", [True, False])
def test_kaggles_own_client_is_signed_in_first(path: Path, monkeypatch: pytest.MonkeyPatch, signs_in: bool):
    server = Server(ARRIVED, state("COMPLETE", "0.5"))

    def authenticate() -> None:
        server.calls.append("signed in")
        if not signs_in:
            raise SystemExit(1)

    server.authenticate = authenticate  # type: ignore[attr-defined]  # as the client has it
    monkeypatch.setenv("KAGGLE_API_TOKEN", "secret")
    for name in ("kaggle", "kaggle.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "kaggle.api.kaggle_api_extended", Reply(KaggleApi=lambda: server))
    assert submit(path, "titanic", message="try", yes=True).status == ("complete" if signs_in else "failed")
    assert server.calls == (["signed in", (str(path), "try", "titanic")] if signs_in else ["signed in"])


def test_credentials_are_found_in_the_order_of_the_client(tmp_path: Path):
    own, other, config = tmp_path / ".kaggle", tmp_path / ".config" / "kaggle", tmp_path / "other"
    for folder in (own, other, config):
        folder.mkdir(parents=True)
    named = {"KAGGLE_USERNAME": "a", "KAGGLE_KEY": "b"}
    assert credentials_in({"KAGGLE_USERNAME": "a"}, tmp_path) is None
    for file, environ in [
        (own / "credentials.json", {}),
        (other / "kaggle.json", {}),
        (own / "kaggle.json", {}),
        (config / "kaggle.json", {"KAGGLE_CONFIG_DIR": str(config)}),
    ]:
        file.write_text("{}")
        assert credentials_in(environ, tmp_path) == str(file)
    assert credentials_in(named, tmp_path) == "KAGGLE_USERNAME and KAGGLE_KEY"
    (own / "access_token").write_text("t")
    assert credentials_in(named, tmp_path) == str(own / "access_token")
    assert credentials_in({"KAGGLE_API_TOKEN": "t", **named}, tmp_path) == "KAGGLE_API_TOKEN"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"path": "nothing.csv"}, MissingFileError, r"There is no submission at 'nothing\.csv'"),
        ({"competition": ""}, ArgumentError, "submit needs a competition, wait >= 0 and poll > 0, got ''"),
        ({"poll": 0}, ArgumentError, "poll=0"),
        ({"yes": "yes"}, ArgumentTypeError, "yes must be bool, got str"),
        ({"message": None}, ArgumentTypeError, "message must be a string"),
    ],
)
def test_mistakes_in_the_call_are_raised(path: Path, options: dict[str, Any], kind: type[Exception], message: str):
    given = {"path": path, "competition": "titanic", "message": "try", "yes": True, "client": Server(ARRIVED), **options}
    with pytest.raises(kind, match=message):
        submit(**given)


@pytest.mark.parametrize(
    ("status", "cure"), [(400, "Check the file"), (401, "new token"), (404, "no competition"), (429, "limit is reached")]
)
def test_what_the_server_refuses_says_what_to_do(path: Path, status: int, cure: str):
    error = HTTPError(f"{status} Client Error")
    error.response = Reply(text="", status_code=status)  # type: ignore[misc]
    server = Server(error, [OLDER])
    found = submit(path, "titanic", message="try", yes=True, client=server)
    assert found.status == "failed"
    assert cure in found.message
    assert len(server.calls) == 1

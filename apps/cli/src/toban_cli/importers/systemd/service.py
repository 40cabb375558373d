"""A service to the spec of a job: commands, surroundings, limits, retries."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from toban_cli.importers.result import Draft
from toban_cli.importers.systemd.exec_line import ExecError, ExecLine, read_exec, split_words
from toban_cli.importers.systemd.time_span import seconds
from toban_cli.importers.systemd.unit_file import Unit
from toban_domain.shell_detection import shell_reason

# What the job would run without although the unit asks for it.
_NEEDED = {
    "EnvironmentFile": "its variables: write them into `env`, passwords with `toban secret set` into `secrets`",
    "PassEnvironment": "variables of the manager: write them into `env`",
    "LoadCredential": "credentials: use `secrets`",
    "LoadCredentialEncrypted": "credentials: use `secrets`",
    "SetCredential": "credentials: use `secrets`",
    "ExecCondition": "a condition: put it into the command",
    "RootDirectory": "another root: use a container step",
    "RootImage": "another root: use a container step",
    "StandardInput": "input: pipe it within the command",
    "StandardInputText": "input: pipe it within the command",
}
_PLAIN = ("StandardOutput", "StandardError", "SyslogIdentifier", "SyslogLevel", "SyslogFacility", "LogLevelMax", "RemainAfterExit",
          "KillMode", "SendSIGKILL", "NotifyAccess")  # fmt: skip
# When systemd starts a service again, of those that an exit status alone does not start.
_RESTARTS = {
    "on-abort": "starts it again after a signal only",
    "on-abnormal": "starts it again after a signal, a timeout or the watchdog only",
    "on-watchdog": "starts it again after the watchdog only",
}
# systemd's own: so many starts within ten seconds.
_DEFAULT_BURST = 5
_MAX_RETRIES = 1000


class ServiceError(ValueError):
    """No job can be made of the service: why, and what to do."""


def read_service(service: Unit, draft: Draft) -> None:
    """Fills the draft; raises ServiceError."""
    env = _environment(service, draft)
    steps = _steps(service, draft, env)
    draft.job["steps"] = steps
    if env:
        draft.job["env"] = env
    if any(shell_reason(step["argv"]) for step in steps):
        draft.job["allow_shell"] = True
    _working_dir(service, draft)
    _limits(service, draft)
    _retry(service, draft)
    # systemd starts no second process of a service that is active.
    draft.job["concurrency"] = {"policy": "forbid"}
    _account(service, draft)
    _rest(service, draft)


def expanded(unit: Unit, text: str, what: str, draft: Draft) -> str:
    """The text with the specifiers that are known; the others are missing."""
    done, unknown = unit.expand(text)
    if unknown:
        draft.missing.append(f"{what} has the specifier {', '.join(unknown)}: write its value")
    return done


def _environment(service: Unit, draft: Draft) -> dict[str, str]:
    env: dict[str, str] = {}
    for line in service.all("Service", "Environment"):
        try:
            words = split_words(expanded(service, line, "Environment=", draft))
        except ExecError as error:
            raise ServiceError(f"Environment={line}: {error}") from None
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                draft.notes.append(f"Environment={word} has no =, systemd ignores it too")
            else:
                env[name] = value
    for name in service.all("Service", "UnsetEnvironment"):
        env.pop(name, None)
    return env


def _steps(service: Unit, draft: Draft, env: dict[str, str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for key in ("ExecStartPre", "ExecStart", "ExecStartPost"):
        commands = [
            command for line in service.all("Service", key) for command in _commands(service, key, line, draft, env)
        ]
        if key == "ExecStart" and not commands:
            raise ServiceError(f"{service.name} has no ExecStart=")
        base = {"ExecStart": "command", "ExecStartPre": "before", "ExecStartPost": "after"}[key]
        for number, command in enumerate(commands, start=1):
            steps.append({"id": base if number == 1 else f"{base}-{number}", "argv": list(command.argv)})
    if len(steps) > 1:
        draft.notes.append(f"its {len(steps)} commands are steps, one after the other")
    return steps


def _commands(service: Unit, key: str, line: str, draft: Draft, env: dict[str, str]) -> Iterable[ExecLine]:
    try:
        commands = read_exec(expanded(service, line, f"{key}=", draft), env)
    except ExecError as error:
        raise ServiceError(f"{key}={line}: {error}") from None
    for command in commands:
        program = command.argv[0]
        if "-" in command.prefixes:
            draft.notes.append(
                f"{program}: systemd ignores its failure (-); here a failure fails the run and no step follows"
            )
        if "@" in command.prefixes:
            draft.notes.append(f"{program}: the name for the list of processes (@) is left out")
        if set(command.prefixes) & set("+!"):
            draft.notes.append(f"{program}: its privileges (+ or !) are those of the executor")
        if command.unknown:
            draft.missing.append(
                f"{key}= has {', '.join(command.unknown)} without a value in Environment=: write the value"
            )
        yield command


def _working_dir(service: Unit, draft: Draft) -> None:
    folder = expanded(service, service.last("Service", "WorkingDirectory"), "WorkingDirectory=", draft)
    if folder.startswith("-"):
        draft.notes.append("WorkingDirectory= may be absent for systemd (-); here the step fails then")
        folder = folder[1:]
    if folder.startswith("~"):
        draft.missing.append("WorkingDirectory=~ is the home of the account: write the folder as working_dir")
    elif folder:
        draft.job["working_dir"] = folder


def _limits(service: Unit, draft: Draft) -> None:
    oneshot = service.last("Service", "Type", "simple") == "oneshot"
    both = service.last("Service", "TimeoutSec")
    start = service.last("Service", "TimeoutStartSec") or both
    text = service.last("Service", "RuntimeMaxSec")
    if oneshot:
        text = start
    elif start:
        draft.notes.append(
            "TimeoutStartSec= bounds the start, not the run: left out (RuntimeMaxSec= would be timeout_seconds)"
        )
    limit = _span("timeout", text, draft)
    if limit:
        draft.job["timeout_seconds"] = max(1, math.ceil(limit))
    grace = _span("TimeoutStopSec", service.last("Service", "TimeoutStopSec") or both, draft)
    if grace:
        draft.job["cancel"] = {"grace_seconds": grace}


def _span(what: str, text: str, draft: Draft) -> float:
    """Seconds; 0 for none and for infinity."""
    found = seconds(text) if text else 0.0
    if found is None:
        draft.notes.append(f"{what}: {text!r} is no span of time, systemd ignores it too")
    return 0.0 if found is None or math.isinf(found) else found


def _retry(service: Unit, draft: Draft) -> None:
    restart = service.last("Service", "Restart", "no")
    wait = _span("RestartSec", service.last("Service", "RestartSec", "100ms"), draft)
    burst = service.last("Unit", "StartLimitBurst") or service.last("Service", "StartLimitBurst")
    for section, key in (
        ("Unit", "StartLimitIntervalSec"),
        ("Unit", "StartLimitInterval"),
        ("Service", "StartLimitInterval"),
    ):
        service.last(section, key)
    if restart == "no":
        return
    if restart in ("always", "on-success"):
        draft.missing.append(
            f"Restart={restart} starts the service again after a success, which no job does: it is a daemon"
        )
        return
    if restart != "on-failure":
        draft.missing.append(
            f"Restart={restart} {_RESTARTS.get(restart, 'is no setting of systemd')}, and retries follow every failure: write `retry`"
            " if the command may run again after any of them"
        )
        return
    starts = int(burst) if burst.isascii() and burst.isdigit() and int(burst) else _DEFAULT_BURST
    retries = min(starts - 1, _MAX_RETRIES)
    draft.job["retry"] = {"max_retries": retries, "backoff_seconds": [wait]}
    draft.notes.append(
        f"Restart={restart} is retry.max_retries: {retries}, from StartLimitBurst={starts}"
        f"{'' if burst else ' (the default)'}; systemd counts starts in an interval, here they are counted for each run"
    )


def _account(service: Unit, draft: Draft) -> None:
    labels = dict(draft.labels)
    for key in ("User", "Group", "DynamicUser", "Slice"):
        if value := service.last("Service", key):
            labels[f"systemd/{key.lower()}"] = value
    draft.labels = labels
    if user := service.last("Service", "User"):
        draft.notes.append(
            f"runs as the executor's own account, not as {user}: kept as label systemd/user; start an executor under that account and"
            " select it with selector.labels"
        )


def _rest(service: Unit, draft: Draft) -> None:
    kind = service.last("Service", "Type", "simple")
    if kind in ("forking", "dbus", "notify", "notify-reload"):
        draft.missing.append(
            f"Type={kind} is a daemon, and a run ends with its command: use a command that stays in the foreground"
        )
    for key, instead in _NEEDED.items():
        draft.missing += [
            f"{key}={value}: {instead}" for value in service.all("Service", key) if value not in ("null", "")
        ]
    for key in _PLAIN:
        service.last("Service", key)

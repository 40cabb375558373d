"""Puts the commands together and turns every error into one line on stderr and an exit code (docs/errors.md)."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from toban_cli import cluster_config, report, suggestions
from toban_cli.commands import (
    apply,
    archive,
    audit,
    audit_chain,
    cluster,
    completion,
    context,
    delete,
    dev,
    diff,
    doctor,
    events,
    executors,
    explain,
    groups,
    hooks,
    import_crontab,
    imports,
    invites,
    job_logs,
    job_versions,
    jobs,
    join,
    limits,
    login,
    logs,
    open_page,
    overview,
    own_account,
    run_changes,
    run_counts,
    run_wait,
    runs,
    schedule_load,
    schedule_write,
    schedules,
    secrets,
    settings,
    sync,
    tokens,
    unit,
    user_links,
    users,
    version,
    webhooks,
)
from toban_cli.tree import App, Errors, OfContext, present_verb
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION

# An option that was meant as a value.
_NEGATIVE = re.compile(r"^No such option: -[\d.]")
Verbs = Mapping[str, Callable[..., Any]]

EXIT_USAGE = 64
# As toban_observability.tracing.ENDPOINTS, which is not loaded for every command.
_TRACING = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXIT_INTERRUPTED = 130
# Results that cannot be kept: the disk is full, a quota is reached, a file is as large as it may be, the disk is broken.
_UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

_HELP = """Schedules jobs on a fleet of executors.

Examples:
toban apply -f job.yaml
toban run start hello --wait --follow
toban run list --watch
"""


# Commands without a noun; then each noun with its verbs. One act has one verb in all nouns: `list`, `get`, `add` for what must not exist yet,
# `set` to change, `delete`. `status` is of what has no name, and what was revoked is still listed.
_ALONE: Verbs = {
    "apply": apply.apply,
    "validate": apply.validate,
    "sync": sync.sync,
    "diff": diff.diff,
    "delete": delete.delete,
    "dev": dev.dev,
    "doctor": doctor.doctor,
    "explain": explain.explain,
    "completion": completion.completion,
    "unit": unit.unit,
    "version": version.version,
    "open": open_page.open_page,
    "login": login.login,
    "logout": login.logout,
}
_NOUNS: Mapping[str, tuple[str, Verbs]] = {
    "job": (
        "Job definitions.",
        {
            "list": jobs.list_jobs,
            "get": jobs.get_job,
            "versions": job_versions.list_versions,
            "days": job_versions.list_days,
            "logs": job_logs.job_logs,
            "disable": jobs.disable_job,
            "enable": jobs.enable_job,
            "delete": jobs.delete_job,
        },
    ),
    "schedule": (
        "Schedules: when jobs are started.",
        {
            "add": schedule_write.add,
            "set": schedule_write.set_schedule,
            "delete": schedules.delete,
            "list": schedules.list_schedules,
            "get": schedules.get_schedule,
            "next": schedules.next_slots,
            "load": schedule_load.load,
            "pause": schedules.pause,
            "resume": schedules.resume,
        },
    ),
    "run": (
        "Runs: start, list, follow, cancel, repeat.",
        {
            "start": runs.start,
            "wait": run_wait.wait,
            "list": runs.list_runs,
            "counts": run_counts.count_runs,
            "get": runs.get_run,
            "why": runs.why,
            "usage": runs.usage,
            "logs": logs.logs,
            "cancel": run_changes.cancel,
            "rerun": run_changes.rerun,
            "note": run_changes.note,
            "kill": runs.kill,
            "lost": runs.lost,
        },
    ),
    "event": ("Events: emit them, list their outcomes.", {"emit": events.emit, "list": events.list_events}),
    "trigger": (
        "Triggers: which events start which jobs.",
        {"list": events.list_triggers, "get": events.get_trigger, "delete": events.delete_trigger},
    ),
    "executor": (
        "Executors: list, drain, detach.",
        {
            "list": executors.list_executors,
            "get": executors.get_executor,
            "drain": executors.drain,
            "undrain": executors.undrain,
            "detach": executors.detach,
            "join": join.join,
        },
    ),
    "invite": (
        "Invites: tokens with which machines become executors.",
        {"list": invites.list_invites, "add": invites.add, "delete": invites.delete},
    ),
    "cluster": (
        "The cluster: its status, what needs attention, its leader and its epochs.",
        {
            "status": cluster.status,
            "overview": overview.overview,
            "demote": cluster.demote,
            "adopt-epoch": cluster.adopt_epoch,
        },
    ),
    "limit": (
        "Limits: how many runs at a time, and what waits for them.",
        {
            "list": limits.list_limits,
            "get": limits.get_limit,
            "set": limits.set_limit,
            "reset": limits.reset_limit,
            "open": limits.open_limit,
            "close": limits.close_limit,
            "signal": limits.signal_limit,
        },
    ),
    "group": (
        "Executor groups: which labels executors may have, by their certificates.",
        {
            "list": groups.list_groups,
            "get": groups.get_group,
            "add": groups.add,
            "set": groups.set_group,
            "delete": groups.delete,
        },
    ),
    "secret": (
        "Secrets of jobs: set them, list their names, rotate their key.",
        {
            "set": secrets.set_secret,
            "list": secrets.list_secrets,
            "delete": secrets.delete,
            "rotate": secrets.rotate,
        },
    ),
    "webhook": (
        "Webhooks: send ends of runs to other systems.",
        {
            "set": webhooks.set_webhook,
            "list": webhooks.list_webhooks,
            "delete": webhooks.delete,
            "test": webhooks.test,
            "deliveries": webhooks.deliveries,
            "redeliver": webhooks.redeliver,
        },
    ),
    "hook": (
        "Hooks: messages of other systems become events.",
        {
            "set": hooks.set_hook,
            "list": hooks.list_hooks,
            "get": hooks.get_hook,
            "delete": hooks.delete,
            "test": hooks.test,
        },
    ),
    "settings": (
        "Settings that can be changed without a restart.",
        {"list": settings.list_settings, "get": settings.get_setting, "set": settings.set_setting},
    ),
    "archive": (
        "The archive of logs in the object store.",
        {"status": archive.status, "run": archive.run, "verify": archive.verify},
    ),
    "user": (
        "Accounts: who may do what.",
        {
            "bootstrap": users.bootstrap,
            "first": users.first,
            "state": users.state,
            "whoami": users.whoami,
            "list": users.list_users,
            "add": users.add,
            "password": users.set_password,
            "enable": users.enable,
            "disable": users.disable,
            "delete": users.delete,
            "sign-out": users.sign_out,
            "link": user_links.link,
            "unlink": user_links.unlink,
            "groups": users.list_groups,
            "group": users.change_group,
            "rules": users.list_rules,
            "grant": users.grant,
            "deny": users.deny,
            "revoke": users.revoke,
            "may": users.may,
            "passwd": own_account.passwd,
            "sessions": own_account.list_sessions,
            "end-session": own_account.end_session,
        },
    ),
    "token": (
        "API tokens.",
        {
            "add": tokens.add,
            "list": tokens.list_tokens,
            "revoke": tokens.revoke,
            "own": own_account.list_tokens,
            "add-own": own_account.add_token,
            "revoke-own": own_account.revoke_token,
        },
    ),
    "audit": (
        "Who started or changed what, and from where.",
        {"list": audit.list_audit, "export": audit_chain.export, "verify": audit_chain.verify},
    ),
    "context": (
        "Contexts: which site the commands go to.",
        {"list": context.list_contexts, "use": context.use, "delete": context.delete, "get": context.get},
    ),
    "import": (
        "Import jobs and schedules of other schedulers.",
        {
            "crontab": import_crontab.crontab,
            "systemd": imports.systemd,
            "kubernetes": imports.kubernetes,
            "celery-beat": imports.celery_beat,
            "airflow": imports.airflow,
        },
    ),
}


def verbs_of() -> dict[str, list[str]]:
    """The verbs of each noun."""
    return {noun: [*verbs] for noun, (_, verbs) in _NOUNS.items()}


def build(first: str = "") -> typer.Typer:
    """The tree of commands. Typer needs 30 ms for the whole: with a command or noun as `first` only that part is built, for an option no verbs."""
    whole = first not in _ALONE and first not in _NOUNS
    app = App(_HELP, invoke_without_command=True)
    app.callback()(_root)
    for name, function in _ALONE.items():
        if whole or name == first:
            app.command(name)(function)
    for noun, (text, verbs) in _NOUNS.items():
        if whole or noun == first:
            group = App(text)
            for name, function in () if first.startswith("-") else verbs.items():
                group.command(name)(function)
            app.add_typer(group, name=noun)
    return app


def run(argv: Sequence[str]) -> int:
    """Runs one command; the exit code. Never raises for a mistake of the caller or of the cluster."""
    as_json = report.wants_json(argv, os.environ)
    if os.environ.get(completion.VARIABLE):
        completion.register_shells()
    try:
        code = build(_first(argv))(args=list(argv), prog_name="toban", standalone_mode=False)
    except TobanError as error:
        report.error(error, as_json=as_json)
        return error.exit_code
    except typer.TyperException as error:
        _usage(error, argv, as_json=as_json)
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit as end:
        # Typer exits like this when the reader of our output left (`| head`): there is nothing to report or to flush.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        report.drop_output()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITTEN:
            problem = report.unwritten(error)
            report.error(problem, as_json=as_json)
            return problem.exit_code
        return _unexpected(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point."""
    # A caller may have closed them (`>&-`).
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open(encoding="utf-8")
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets "?" for it, not the end of the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    raise SystemExit(_traced(sys.argv[1:]))


def _traced(argv: Sequence[str]) -> int:
    """The command below whatever trace it was started in (TRACEPARENT), with a span of its own where the OTEL_* variables ask for it."""
    if not any(name in os.environ for name in ("TRACEPARENT", *_TRACING)):
        return run(argv)
    from toban_observability import tracing

    tracing.adopt(os.environ.get("TRACEPARENT", ""))
    tracing.setup("cli", VERSION)
    try:
        with tracing.span(" ".join(["toban", *_command_words(argv)])):
            return run(argv)
    finally:
        tracing.shutdown()


def _own_options(argv: Sequence[str]) -> int:
    """How many words of options stand before the command or noun."""
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] in ("--context", "--errors") else 1
    return min(index, len(argv))


def _first(argv: Sequence[str]) -> str:
    """The command or noun; an option where that ends the command line or asks for help."""
    index = _own_options(argv)
    asks = next((word for word in argv[:index] if word in ("-h", "--help")), "")
    return asks or "".join(argv[index : index + 1]) or "".join(argv[:1])


def _command_words(argv: Sequence[str]) -> list[str]:
    """The noun and the verb alone: other arguments may be secret."""
    argv = argv[_own_options(argv) :]
    noun = argv[0] if argv else ""
    verbs = _NOUNS[noun][1] if noun in _NOUNS else {}
    words = [noun if word == noun else present_verb(word, verbs) for word in argv]
    return [word for word in words if (word == noun and (noun in _NOUNS or noun in _ALONE)) or word in verbs][:2]


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version of this command.")] = False,
    direct: Annotated[
        bool,
        typer.Option(
            "--direct",
            help="Call the coordinators as the certificate, without REST and token: for accounts that are broken.",
        ),
    ] = False,
    context: OfContext = None,
    errors: Errors = None,
) -> None:
    del context, errors
    if direct:
        os.environ[cluster_config.DIRECT] = "1"
    if version:
        report.echo(f"toban {VERSION}")
        raise typer.Exit


def _usage(error: typer.TyperException, argv: Sequence[str], *, as_json: bool) -> None:
    context = getattr(error, "ctx", None)
    near = sorted(getattr(error, "possibilities", None) or ())
    # A verb of another noun is closer than a word that looks like it.
    plain = error.message if near else error.format_message()
    command = context.command_path if context else "toban"
    own = _own_options(argv)
    if hidden := suggestions.instead_of_value(plain, command):
        message = hidden
    elif meant := suggestions.hint(plain, argv[own:], {"": [*_ALONE], **verbs_of()}):
        meant = " ".join(["toban", *argv[:own], meant.partition(" ")[2]])
        message = f"{plain.partition('. Did you mean')[0].rstrip('.')}. Did you mean `{meant}`?"
    else:
        message = f"{plain}. Did you mean {' or '.join(near)}?" if near else plain
    if _NEGATIVE.search(message):
        message += ". Put a value that begins with - after `--`, such as `-- -5`"
    report.usage(message, as_json=as_json, command=command)


def _unexpected(error: Exception, *, as_json: bool) -> int:
    """A bug of this command: one line, too; TOBAN_TRACEBACK=1 prints the traceback."""
    if os.environ.get("TOBAN_TRACEBACK"):
        import traceback

        report.note(traceback.format_exc().rstrip())
    problem = TobanError(
        ErrorCode.INTERNAL,
        f"toban itself failed ({type(error).__name__}: {' '.join(str(error).split())}); "
        "run it again with TOBAN_TRACEBACK=1 and report what it prints",
    )
    report.error(problem, as_json=as_json)
    return problem.exit_code

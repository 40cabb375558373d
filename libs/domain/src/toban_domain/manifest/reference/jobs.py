"""The keys of a job."""

from __future__ import annotations

from toban_domain.manifest.reference.fields import Kind, field

_STEP = (
    field(
        "argv",
        "list of texts",
        "program and arguments, each a text; nothing is split or expanded. The program is looked for in "
        "`/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`",
        unset="required for `command`",
        example="[tar, -czf, a.tgz, data]",
    ),
    field(
        "type",
        "command, python",
        "`command` starts a program, `python` calls a function; other kinds are not available in this version",
        default="command",
        example="command",
    ),
    field(
        "callable",
        "module:function",
        "module and function, called with the payload: see Python steps below",
        unset="required for `python`",
        example="shop.report:make",
    ),
    field(
        "python_path",
        "list of folders",
        "of a `python` step: folders in which modules are looked for, before the standard library. Relative ones count from the folder of the "
        "YAML file",
        default="[]",
        example="[., lib]",
    ),
    field("id", "name", "its own within the job", unset="`step-N`", example="pack"),
    field("name", "text", "for people", default='""', example="Pack the folder"),
    field("timeout_seconds", "whole number", "of this step; 0 = the job's alone", default="0", example="30"),
    field(
        "cancelable", "true, false", "false: a cancel waits for the end of this step", default="true", example="false"
    ),
)

_RETRY = (
    field(
        "max_retries",
        "whole number",
        "tries after the first; FAILED and TIMED_OUT use them up, the loss of an executor does not",
        default="0",
        example="2",
    ),
    field("max_attempts", "whole number", "the same, counted with the first; never both", default="1", example="3"),
    field(
        "backoff_seconds",
        "list of seconds, or a mapping",
        "wait before each retry; the last of a list repeats",
        unset="no wait",
        example="[5, 60]",
        fields=(
            field("initial", "seconds", "wait before the first retry", default="1", example="1"),
            field("multiplier", "number", "by which each wait is longer than the one before", default="2", example="2"),
            field("max", "seconds", "no wait is longer", default="3600", example="300"),
            field("jitter", "0 … 1", "share of the delay by which it is spread, both ways", default="0", example="0.2"),
        ),
    ),
)

_CANCEL = (
    field("supported", "true, false", "whether `run cancel` is allowed", default="true", example="false"),
    field(
        "mode",
        "kill, cooperative",
        "kill: SIGTERM at once; cooperative: the job is asked first, SIGTERM after the grace",
        default="kill",
        example="cooperative",
    ),
    field("grace_seconds", "seconds", "SIGTERM to SIGKILL", default="10", example="2.5"),
)

JOB = Kind(
    name="Job",
    meaning="What to run, how long, how often again, and where.",
    example="""\
apiVersion: toban/v1
kind: Job
metadata: {name: disk}
spec:
  steps:
    - argv: [df, -h, /]
""",
    fields=(
        field(
            "steps",
            "list of steps",
            "commands, one after the other; the first that fails ends the attempt",
            unset="required",
            example="[{argv: [tar, -c, /srv]}]",
            fields=_STEP,
            listed=True,
        ),
        field("enabled", "true, false", "a disabled job gets no new runs", default="true", example="false"),
        field(
            "payload_schema",
            "JSON Schema",
            "JSON Schema (2020-12) of the payload; a run whose payload does not fit is refused",
            unset="none",
            example="{type: object, required: [name]}",
        ),
        field(
            "default_payload",
            "mapping",
            "parameters, each overridden by the payload of a schedule or of `run start`; 32 KiB in all",
            default="{}",
            example="{name: world}",
        ),
        field(
            "env",
            "text to text",
            "variables of the command; names beginning with `TOBAN_` are Toban's",
            default="{}",
            example="{LANG: C.UTF-8}",
        ),
        field(
            "working_dir",
            "folder",
            "folder of the command. A relative one counts from the folder of the YAML file: `toban apply` makes it absolute; "
            "it must exist on the executor",
            unset="a folder of the executor",
            example=".",
        ),
        field(
            "timeout_seconds",
            "whole number",
            "of one attempt, all steps; 0 = none; then SIGTERM, `grace_seconds`, SIGKILL to the whole process tree, TIMED_OUT",
            default="0",
            example="600",
        ),
        field("retry", "mapping", "how often a run is tried again", fields=_RETRY),
        field("cancel", "mapping", "how a run is stopped", fields=_CANCEL),
        field(
            "concurrency",
            "mapping",
            "runs at the same time",
            fields=(
                field(
                    "policy",
                    "allow, forbid",
                    "what a new run does while another of the same schedule is live",
                    unset="forbid for slots, allow on demand",
                    example="allow",
                ),
            ),
        ),
        field("priority", "whole number", "−1000 … 1000; higher goes first", default="0", example="10"),
        field(
            "selector",
            "mapping",
            "which executors",
            fields=(
                field("labels", "text to text", "labels that an executor must have", default="{}", example="{zone: a}"),
            ),
        ),
        field(
            "logs",
            "mapping",
            "what is kept of the output ([logs.md](logs.md))",
            fields=(
                field(
                    "max_mb",
                    "whole number",
                    "MiB of one attempt; what comes after is left out but for the last lines; 0 = no limit",
                    default="1024",
                    example="100",
                ),
                field(
                    "max_lines_per_second",
                    "whole number",
                    "lines over this rate (kept up for ten seconds) are left out, and counted in the log; 0 = no limit",
                    default="10000",
                    example="500",
                ),
                field(
                    "redact",
                    "list of names",
                    "variables of `env` and top-level keys of the payload whose values are replaced by `***` in the output, also as base64 "
                    "or URL-encoded",
                    default="[]",
                    example="[API_KEY]",
                ),
            ),
        ),
        field(
            "on_lease_loss",
            "kill",
            "what happens to a live run whose executor loses its lease ([fencing.md](fencing.md) 3.7)",
            unset="the version's, now kill",
            example="kill",
        ),
        field(
            "max_lost",
            "whole number",
            "how often a run goes on elsewhere after its executor was lost; then EXPIRED",
            default="3",
            example="0",
        ),
        field(
            "max_wait_seconds",
            "whole number",
            "how long a run may wait for its start; then EXPIRED; 0 = no limit",
            default="0",
            example="3600",
        ),
        field(
            "skip_late_after_seconds",
            "whole number",
            "a run that has not started that long after its time is SKIPPED; 0 = never",
            unset="the setting `skip_late_runs_after_seconds`",
            example="60",
        ),
        field(
            "allow_shell",
            "true, false",
            "whether argv may be a shell, or an interpreter with its program as an argument (`python -c`)",
            default="false",
            example="true",
        ),
    ),
)

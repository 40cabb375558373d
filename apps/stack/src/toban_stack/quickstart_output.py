"""What `make up` prints: progress, the first run or the backlog, the addresses, and how to stop."""

from datetime import datetime
from pathlib import Path

from toban_runtime.clock import SystemClock
from toban_stack import people
from toban_stack.console import columns, print_lines
from toban_stack.first_run import Backlog, FirstRun, NothingDue
from toban_stack.stack import Stack
from toban_stack.toban_command import Executor, Run, TobanCommand, typed

# The example that shows a first run: its own schedule may leave a newcomer waiting for a minute.
FIRST_JOB = "hello"
# The same where there is no clone.
FIRST_JOB_FILE = Path(__file__).with_name("hello.yaml")
HEADER = ("RUN", "JOB", "SLOT", "EXECUTOR", "SECONDS", "LAST LINE OF OUTPUT")


def run(stack: Stack, *, clone: Path | None) -> None:
    """Starts the stack, applies the `examples/` of a clone or, once, the first job of the package, waits for a run or finds a backlog, and
    prints the result.

    Raises StackError when something fails; processes that this call started are stopped in that case.
    """
    clock = SystemClock()
    began, start = clock.monotonic(), clock.wall()
    before = set(stack.processes())
    stack.up()
    try:
        command = TobanCommand(home=stack.home.root, root=clone or Path.cwd())
        is_new = people.prepare_context(command, stack.home.root)
        if clone:
            print_lines(
                f"• examples: {command.lines('apply', '-f', str(clone / 'examples'), '-o', 'name')} definitions applied"
            )
        elif is_new:
            command.output("apply", "-f", str(FIRST_JOB_FILE))
        if not clone and stack.sites:
            people.enter_context(stack.home.root, stack.sites[0])
        nothing_new = set(stack.processes()) <= before
        if not nothing_new:
            command.start(FIRST_JOB)
        first = FirstRun(command=command, start=start, clock=clock).wait(succeeded_since=None if nothing_new else start)
    except BaseException:
        if not before:
            stack.down()
        raise
    if isinstance(first, Backlog):
        print_lines(f"• catching up: {first}; to watch: {typed('scripts/toban run list --watch')}", "")
    elif isinstance(first, NothingDue):
        print_lines(f"• {first}; see {typed('scripts/toban schedule list')}", "")
    else:
        print_lines("", *columns([HEADER, row(first)]), "")
    print_lines(*classes(command.executors()), "")
    if clone:
        _addresses(stack)
    _hints(stack)
    if stack.sites and (link := people.first_link(command, stack.sites[0])):
        print_lines("", f"First sign-in, good once and for an hour:  {link}")
    print_lines(f"\nToban is up after {clock.monotonic() - began:.0f} s. Stop it with: {typed('make down')}")


def row(run: Run) -> tuple[str, ...]:
    """The cells of a run under HEADER."""
    slot = str(run.get("slot") or run.get("scheduled_for") or "-")
    names = ("id", "job", "slot", "executor", "seconds", "last_line")
    cells = {**run, "slot": slot, "seconds": _seconds(run)}
    return tuple(str(cells.get(name) or "-") for name in names)


def classes(executors: list[Executor]) -> list[str]:
    """A line for each class of executors, and what it means for jobs."""
    lines: dict[str, list[str]] = {}
    for one in executors:
        isolated = one.get("isolation") == "isolated"
        meaning = "each job reaches its own run only" if isolated else "jobs of this executor are one trust level"
        details = "; ".join(one.get("isolation_details", ())) or "no sandbox"
        line = f"class {'isolated' if isolated else 'shared'}: {meaning} ({details})"
        lines.setdefault(line, []).append(str(one["node_id"]))
    return [f"{', '.join(names)}: {line}" for line, names in lines.items()]


def _seconds(run: Run) -> str:
    try:
        span = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    except (KeyError, TypeError, ValueError):
        return "-"
    return f"{span.total_seconds():.3f}"


def _addresses(stack: Stack) -> None:
    processes = stack.processes()
    rows = [(record.role, name, record.address, record.admin) for name, record in processes.items()]
    table = [("ROLE", "PROCESS", "ADDRESS", "HEALTH AND METRICS")]
    table += [(role, name, address, f"http://{admin}/healthz" if admin else "-") for role, name, address, admin in rows]
    token = near(stack.home.admin_token())
    curl = f'curl -s -H "Authorization: Bearer $(cat {token})" http://ADDRESS/healthz, and /metrics'
    print_lines(*columns(table), curl, "")


def _hints(stack: Stack) -> None:
    print_lines(
        *(f"Site  http://{address}" for address in stack.sites),
        f"logs: {near(stack.home.logs)}",
        f"try:  {typed('scripts/toban run start hello --wait --follow')}",
        f"      {typed('scripts/toban cluster status')}",
        f"      {typed('make status')}",
    )


def near(path: Path) -> Path:
    """`path` relative to the working folder when it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

"""What a line runs: % and standard input as cron has them, argv or shell, names."""

from __future__ import annotations

import subprocess

import pytest

from toban_cli.importers.command_line import plain_words
from toban_cli.importers.crontab.account_column import detect
from toban_cli.importers.crontab.command import STDIN_VARIABLE, CommandError, invocation, read_command, split_percent
from toban_cli.importers.crontab.convert import Options, convert
from toban_cli.importers.crontab.environment import Surroundings, assign
from toban_cli.importers.crontab.time_fields import FIELDS, FieldError, write_field
from toban_cli.importers.names import Names, slug, title


@pytest.mark.parametrize(
    ("text", "line", "stdin"),
    [
        ("cat", "cat", None),
        ("cat%", "cat", ""),
        ("cat%a", "cat", "a\n"),
        ("cat%a%b", "cat", "a\nb\n"),
        ("cat%a%", "cat", "a\n"),
        ("cat%%a", "cat", "\na\n"),
        (r"date +\%F", "date +%F", None),
        (r"cat%100\% of it", "cat", "100% of it\n"),
        (r"cat%back\slash", "cat", "back\\slash\n"),
        (r"echo \\%x", r"echo \\", "x\n"),
        ("echo \\", "echo \\", None),
    ],
)
def test_percent_is_read_as_cron_reads_it(text: str, line: str, stdin: str | None) -> None:
    assert split_percent(text) == (line, stdin)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("cat%Hello,%%World", "Hello,\n\nWorld\n"),
        ("cat%", ""),
        (r"tr a-z A-Z%50\% of \n it's $HOME `x`", "50% OF \\N IT'S $HOME `X`\n"),
        ("read one; read two; echo $two $one%1%2", "2 1\n"),
        ("echo ${CRON_STDIN-unset}%x", "unset\n"),
        ("true%" + "y" * 4000, ""),
    ],
)
def test_the_command_gets_its_input(text: str, output: str) -> None:
    made = invocation(read_command(text), "/bin/sh")
    done = subprocess.run(
        made.argv, env={"PATH": "/usr/bin:/bin", "HOME": "/home", **made.env}, capture_output=True, check=True
    )
    assert done.stdout.decode() == output
    assert set(made.env) == {STDIN_VARIABLE}


def test_the_exit_code_is_that_of_the_command() -> None:
    made = invocation(read_command("exit 7%x"), "/bin/sh")
    assert subprocess.run(made.argv, env={"PATH": "/usr/bin:/bin", **made.env}, check=False).returncode == 7


@pytest.mark.parametrize("text", ["", "  ", "%x", "-n -q ", "ID=x ", "cat%" + "y" * 5000])
def test_what_has_no_command_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"command|input"):
        read_command(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/bin/a  b\tc", ["/bin/a", "b", "c"]),
        ("a 'b c' \"d $\"", None),
        ("a 'b $c *' \"d e\"", ["a", "b $c *", "d e"]),
        ("a ''", ["a", ""]),
        ("a=1 b", None),
        ("cd /", None),
        ("a > b", None),
        ("a b*", None),
        ("a ~/b", None),
        ("a {b,c}", None),
        ("'' a", None),
        ("a \\b", None),
        ("a 'b", None),
        ("a\rb", None),
    ],
)
def test_only_what_means_the_same_goes_without_a_shell(line: str, words: list[str] | None) -> None:
    assert plain_words(line)[0] == words


@pytest.mark.parametrize(
    "line",
    ["printf %s\\\\n a 'b  c' \"d\" e", "printf '%s|' 'it'\"'\"'s' x", 'printf %s "a$(echo b)c"', "printf '<%s>' ''"],
)
def test_both_ways_print_what_the_shell_prints(line: str) -> None:
    made = invocation(read_command(line.replace("%", "\\%")), "/bin/sh")
    shell = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout
    assert subprocess.run(made.argv, capture_output=True, check=True).stdout == shell


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --full /home", "backup-home"),
        ("cd / && run-parts --report /etc/cron.hourly", "run-parts-cron-hourly"),
        ("flock -n /tmp/x.lock nice -n 19 /opt/sync.py", "x-lock-nice-19"),
        ("python manage.py clearsessions 2>&1 | logger", "manage-clearsessions"),
        ("|", "job"),
        ("::", "job"),
    ],
)
def test_names_are_what_a_person_would_say(command: str, name: str) -> None:
    if name.startswith("x-lock"):
        # The lock is an argument of the wrapper that cannot be outcome from a program.
        assert slug(title(command))
    else:
        assert slug(title(command)) == name


def test_names_stay_within_their_length_and_apart() -> None:
    names = Names("a" * 60)
    given = {names.name("b" * 500, str(number)) for number in range(50)}
    assert len(given) == 50
    assert max(map(len, given)) <= 128


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("A=b", {"A": "b"}),
        (" A = b c ", {"A": "b c"}),
        ("A='b c '", {"A": "b c "}),
        ('"A" = "b"', {"A": "b"}),
        ("A=", {"A": ""}),
        ("A=''", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("A=it's", {"A": "it's"}),
    ],
)
def test_assignments_are_read_as_cron_reads_them(line: str, env: dict[str, str]) -> None:
    assert assign(Surroundings(), line, 1).after.env == env


def test_a_random_range_is_drawn_within_it() -> None:
    for size in range(1, 60):
        drawn = {write_field(FIELDS[0], f"{size}~59", lambda _, count, s=seed: s % count).text for seed in range(200)}  # type: ignore[misc]
        assert drawn == {str(value) for value in range(size, 60)}


@pytest.mark.parametrize(("text", "sunday"), [("1/3", True), ("5/2", True), ("1/4", False), ("7/2", False)])
def test_a_step_of_weekdays_that_reaches_sunday_says_so(text: str, sunday: bool) -> None:
    written = write_field(FIELDS[4], text, lambda _what, _size: 0)
    assert written.text == f"{text[0]}-7/{text[2]}"
    assert ("7 is Sunday" in written.notes[0]) is sunday


@pytest.mark.parametrize("text", ["", "1-", "-1", "*5", "**", "1//2", "*/x", "1.5", "१", "mon", "1~99", "5~1", "*-3"])
def test_no_minute(text: str) -> None:
    with pytest.raises(FieldError, match="minute"):
        write_field(FIELDS[0], text, lambda _what, _size: 0)


@pytest.mark.parametrize(
    ("source", "comments", "jobs", "system"),
    [
        ("/etc/crontab", [], ["* * * * * x"], True),
        ("/mnt/etc/cron.d/php", [], [], True),
        ("mine", ["# m h dom mon dow user command"], [], True),
        ("mine", ["# *  *  *  *  * user-name command to be executed"], ["* * * * * svc_billing x"], True),
        ("mine", ["# *  *  *  *  *  user-name  command to be executed"], ["* * * * * svc_billing x"], True),
        ("mine", ["#*\t*\t*\t*\t*\tusername\tcommand"], ["* * * * * svc_billing x"], True),
        ("mine", ["# minute hour mday month wday <user> <command>"], ["* * * * * svc_billing x"], True),
        ("mine", ["#minute\thour\tmday\tmonth\twday\twho\tcommand"], ["* * * * * svc_billing x"], True),
        ("mine", ["# min hour day month weekday user command"], ["* * * * * svc_billing x"], True),
        ("mine", ["# * * * * * command to be executed"], ["* * * * * svc_billing x"], False),
        ("mine", ["# * * * * * user /usr/bin/old"], ["* * * * * svc_billing x"], False),
        ("mine", ["# Every day who runs commands"], ["* * * * * svc_billing x"], False),
        ("mine", ["# m h  dom mon dow   command"], ["* * * * * root x"], True),
        ("mine", ["# m h  dom mon dow   command"], ["* * * * * root"], False),
        ("mine", [], ["* * * * * ada x", "@daily root y"], True),
        ("mine", [], ["* * * * * ada x", "@daily y z"], False),
        ("mine", [], [], False),
    ],
)
def test_the_column_for_the_account_is_found(source: str, comments: list[str], jobs: list[str], system: bool) -> None:
    layout = detect(source=source, comments=comments, jobs=jobs, accounts={"ada"})
    assert layout.system is system
    assert layout.reason


def test_comments_right_above_a_job_describe_it() -> None:
    text = "# far\n\n#\n# Near\n#  and dear\n0 1 * * * /usr/bin/x\n0 2 * * * /usr/bin/y\n"
    documents = convert(text.encode(), Options(source="x")).documents
    assert documents[0]["metadata"]["description"] == "Near and dear"
    assert "description" not in documents[2]["metadata"]


DRAWING = """\
# ┌───────────── minute (0–59)
# │ ┌───────────── hour (0–23)
# │ │ ┌───────────── day of the month (1–31)
# │ │ │ ┌───────────── month (1–12)
# │ │ │ │ ┌───────────── day of the week (0–6) (Sunday to Saturday;
# │ │ │ │ │                                   7 is also Sunday on some systems)
# │ │ │ │ │
# * * * * * <command to execute>
"""


@pytest.mark.parametrize(
    "comments",
    [
        "# m h  dom mon dow   command\n",
        "# Minute  Hour  Day  Month  Weekday  Command\n",
        "# *  *  *  *  * user-name command to be executed\n",
        "# Example of job definition:\n# .---------------- minute (0 - 59)\n# |  .------------- hour (0 - 23)\n",
        "# |  |  |  |  |\n",
        "# - - - - -\n# | | | | +----- day of week (0 - 6) (Sunday=0)\n# +------------- min (0 - 59)\n",
        DRAWING,
        "# DO NOT EDIT THIS FILE - edit the master and reinstall.\n# (/tmp/crontab.XXXX installed on Mon Jan  5 2026)\n"
        "# (Cron version V5.0 -- $Id: crontab.c,v 1.12 2004/01/23 18:56:42 vixie Exp $)\n",
        "# (Cronie version 4.2)\n",
        "# /etc/crontab: system-wide crontab\n",
        "# /etc/crontab - root's crontab for FreeBSD\n#\n# $FreeBSD$\n",
        "# /etc/cron.d/anacron: crontab entries for the anacron package\n",
        "# For details see man 4 crontabs\n",
        "# You can also override PATH, but by default, newer versions inherit it from the environment\n#PATH=/usr/bin\n",
        "# The shell of the old days\n#SHELL=/bin/ksh\n",
        "# MAILTO = root\n",
        "# HEADER: This file was autogenerated at 2026-01-05 by puppet.\n",
        "# This file is managed by Puppet\n",
        "# `-- minute (0-59)\n",
        "# Lines below here are managed by Salt, do not edit\n",
        "# BEGIN ANSIBLE MANAGED BLOCK\n",
        "# {{ ansible_managed }}\n",
        "# vim: ft=crontab\n",
        '#ident  "@(#)root 1.21 04/03/23 SMI"\n',
        "# ----------------\n#================\n",
        "#0 1 * * * /usr/bin/off\n",
        "# Old way to make the report\n#0 1 * * mon-fri /usr/bin/off\n",
        "# DISABLED: 0 1 * * * /usr/bin/off\n",
        "##*/5 * * * * root /usr/bin/off\n",
        "#@daily /usr/bin/off\n",
        "#- 0 1 * * * /usr/bin/off\n",
    ],
)
def test_what_is_no_description_describes_nothing(comments: str) -> None:
    documents = convert(f"{comments}0 3 * * * /usr/bin/on\n".encode(), Options(source="x", system=False)).documents
    assert "description" not in documents[0]["metadata"]
    documents = convert(
        f"{comments}# Mine\n0 3 * * * /usr/bin/on\n".encode(), Options(source="x", system=False)
    ).documents
    assert documents[0]["metadata"]["description"] == "Mine"


@pytest.mark.parametrize(
    ("comment", "description"),
    [
        ("# 3 copies are kept", "3 copies are kept"),
        ("# was 0 3 * * * before the move", "was 0 3 * * * before the move"),
        ("# --- Backups ---", "Backups"),
        ("## heading ##", "heading"),
        ("#Ansible: nightly backup", "Ansible: nightly backup"),
        ("# Hours of the office only: 8-18", "Hours of the office only: 8-18"),
        ("# Once a day, a week and a month", "Once a day, a week and a month"),
        ("# Mail the report generated by billing", "Mail the report generated by billing"),
        ("# The C++ build, for m and h", "The C++ build, for m and h"),
        ("# `df` of all disks", "`df` of all disks"),
        ("# /etc/hosts: from the addresses of the day", "/etc/hosts: from the addresses of the day"),
        ("# Do not change the time: the office is closed", "Do not change the time: the office is closed"),
        ("# Imports the file generated by billing", "Imports the file generated by billing"),
    ],
)
def test_a_sentence_about_the_job_describes_it(comment: str, description: str) -> None:
    documents = convert(f"{comment}\n0 3 * * * /usr/bin/on\n".encode(), Options(source="x")).documents
    assert documents[0]["metadata"]["description"] == description


def test_the_order_of_assignments_counts() -> None:
    text = "A=1\n0 1 * * * /usr/bin/x\nA=2\nCRON_TZ=Asia/Tokyo\nSHELL=/bin/bash\n0 2 * * * /usr/bin/y && z\n"
    first, one, second, two = convert(text.encode(), Options(source="x")).documents
    assert (first["spec"]["env"], one["spec"]["timezone"]) == ({"A": "1"}, "UTC")
    assert (second["spec"]["env"], two["spec"]["timezone"]) == ({"A": "2", "SHELL": "/bin/bash"}, "Asia/Tokyo")
    assert second["spec"]["steps"][0]["argv"] == ["/bin/bash", "-c", "/usr/bin/y && z"]


def test_runs_overlap_as_in_cron_unless_the_line_forbids_it() -> None:
    text = "0 1 * * * /usr/bin/x\n0 2 * * * -s /usr/bin/y\n@60 /usr/bin/z\n"
    documents = convert(text.encode(), Options(source="x")).documents
    policies = [document["spec"]["concurrency"]["policy"] for document in documents if document["kind"] == "Job"]
    assert policies == ["allow", "forbid", "forbid"]

"""The lines of an allow-list, and what their patterns match."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_executor.decide.allow_list import (
    DEFAULT_VARIABLES,
    AllowList,
    arguments_match,
    parse_allow_list,
    text_matches,
)

PARTS = st.text(alphabet="ab*", max_size=8)


def test_the_file() -> None:
    listed = parse_allow_list("# ours\n\ntar  # backup\n/opt/x/run\n/opt/jobs/*\nshell: true\n")
    assert listed == AllowList(listed=True, programs=frozenset({"tar", "/opt/x/run", "/opt/jobs/*"}), shell=True)
    empty = parse_allow_list("")
    assert (empty.shell, empty.variables, empty.listed) == (False, DEFAULT_VARIABLES, True)


def test_arguments_and_variables() -> None:
    listed = parse_allow_list(
        "git\n  args: fetch  # all\nargs: log '--format=%h # %s' ...\ntar\nenv: DAY APP_*\nenv: TZ # zone\n"
    )
    assert listed.programs == {"git", "tar"}
    assert listed.arguments == {"git": (("fetch",), ("log", "--format=%h # %s", "..."))}
    assert listed.variables == ("DAY", "APP_*", "TZ")
    assert parse_allow_list("tar\nargs:\n").arguments == {"tar": ((),)}, "no argument at all"
    assert parse_allow_list("tar\nargs: -c\ntar\n").arguments == {}, "it stands without patterns as well"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("two words", "neither a name nor an absolute path"),
        ("relative/path", "neither a name nor an absolute path"),
        ("/opt/*/run", "only as /FOLDER/"),
        ("shell: yes", "must be true or false"),
        ("env: A=1", "'A=1' is no name"),
        ("env: A**", "is no name"),
        ("env: LANG LD_PRELOAD", "'LD_PRELOAD' can never be listed"),
        ("env: GIT_*", "'GIT_*' can never be listed"),
        ("env: PATH", "'PATH' can never be listed"),
        ("args: ... x", "write it last"),
        ("args: 'x", "No closing quotation"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str) -> None:
    with pytest.raises(ValueError, match="line 2") as caught:
        parse_allow_list(f"tar\n{line}\n")
    assert words in str(caught.value)


def test_arguments_stand_below_their_program() -> None:
    with pytest.raises(ValueError, match="line 1: args: stands below no program"):
        parse_allow_list("args: -c\n")


@pytest.mark.parametrize(
    ("patterns", "arguments", "matches"),
    [
        ((), [], True),
        ((), ["x"], False),
        (("x",), [], False),
        (("...",), [], True),
        (("x", "..."), ["x", "y", "z"], True),
        (("x", "..."), ["y", "x"], False),
        (("--day=*",), ["--day=2026-01-01"], True),
        (("--day=*",), ["x--day=1"], False),
        (("/b/*.tgz",), ["/b/a b/c.tgz"], True),
        (("/b/*.tgz",), ["/b/c.tgz\n/etc"], False),
        (("a*a",), ["a"], False),
        (("[x]",), ["x"], False),
    ],
)
def test_arguments_as_a_whole(patterns: tuple[str, ...], arguments: list[str], matches: bool) -> None:
    assert arguments_match(patterns, arguments) is matches


@given(pattern=PARTS, text=st.text(alphabet="ab", max_size=12))
def test_a_pattern_means_what_the_expression_means(pattern: str, text: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert text_matches(pattern, text) is bool(re.fullmatch(expression, text, re.DOTALL))


def test_no_pattern_takes_long() -> None:
    """With backtracking this would take years."""
    began = time.process_time()
    assert not text_matches("*a" * 5000 + "*b", "a" * 200_000)
    assert not text_matches("a*" * 30 + "b*c", "a" * 1_000_000)
    assert time.process_time() - began < 1

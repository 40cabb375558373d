"""A dead link, a missing anchor and a file of another host are found, in documents and in a built site."""

from pathlib import Path

import pytest

from toban_testing.documents import BuiltSite, Shell, Step, anchors, dead_links, steps

pytestmark = pytest.mark.long


def test_anchors_are_those_of_a_repository_page() -> None:
    text = "# The `toban` command\n```\n# no heading\n```\n## A, B & C: [one_two](x.md)\n<a id=own></a>\n"
    assert anchors(text) == {"the-toban-command", "a-b--c-one_two", "own"}


PAGE = """Put this into `a.yaml`:
```yaml
one: 1
```
<!-- not run: it never ends -->
```console
$ tail -f a.yaml
```
1. Then:
   ```console
   $ cat a.yaml
   one: 1
   $ echo done
   ```
```python
# b.py
print(1)
```
"""


def test_what_a_page_tells_to_do() -> None:
    assert list(steps(PAGE)) == [
        Step(line=2, file="a.yaml", text="one: 1\n"),
        Step(line=11, command="cat a.yaml"),
        Step(line=13, command="echo done"),
        Step(line=15, file="b.py", text="# b.py\nprint(1)\n"),
    ]
    with pytest.raises(ValueError, match="line 2: the block has no file"):
        list(steps("An example:\n```yaml\none: 1\n```\n"))


def test_a_block_is_written_or_appended(tmp_path: Path) -> None:
    page = "Put this into `a/b.py`:\n```python\none = 1\n```\nAppend this to `a/b.py`:\n```python\ntwo = 2\n```\n"
    for step in [*steps(page), *steps(page)]:
        step.write(tmp_path)
    assert (tmp_path / "a/b.py").read_text() == "one = 1\ntwo = 2\n"


def test_a_shell_keeps_what_a_command_has_set(tmp_path: Path) -> None:
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        shell.types("export NAME=Ada; alias greet='echo hello'")
        assert shell.types("greet $NAME  # a comment") == "hello Ada\n"
        assert shell.types("cat; printf x >&2; false", code=1) == "x"
        with pytest.raises(AssertionError, match="exit 3\nwhy"):
            shell.types("echo why; (exit 3)")


def test_dead_links_of_a_document(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# There\n")
    document = tmp_path / "a.md"
    document.write_text(
        "# Own\n[a](there.md#there) [b](there.md#gone) [c](#own) [d](#not) ![e](gone.png) `[f](code.md)` [g](https://example.org/x)\n"
    )
    assert dead_links(document) == ["there.md#gone", "#not", "gone.png"]


def test_what_is_wrong_in_a_built_site(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="one/#here"></a><a href="one/#gone"></a><a href="two/"></a><a href="https://example.org"></a>'
        '<link rel=stylesheet href="//example.org/a.css"><img src="one/picture.png"><script src="https://example.org/b.js"></script>'
    )
    (tmp_path / "one" / "index.html").write_text('<h1 id="here"></h1><a href="..">up</a>')
    (tmp_path / "site.css").write_text(
        "@import 'https://example.org/c.css'; a { background: url(data:image/png;base64,A) }"
    )
    site = BuiltSite(tmp_path)
    assert site.dead_links() == ["index.html: one/#gone", "index.html: two/"]
    assert site.loaded_from_elsewhere() == [
        "index.html: //example.org/a.css",
        "index.html: https://example.org/b.js",
        "site.css: https://example.org/c.css",
    ]

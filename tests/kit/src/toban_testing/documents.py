"""Documents in Markdown as data: what a reader types and writes, and the anchors and links of the files and of the site made of them.

A block of code on a page is a file, when its first line is a comment with the name of a Python file, or the line above ends in "into `NAME`:". With
"to `NAME`:" the block is appended to the file.
Lines of a `console` block that begin with `$ ` are commands. Any other block has a comment `<!-- not run: REASON -->` above it.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_HTML_ANCHOR = re.compile(r"""<a (?:id|name)=["']?([^"'> ]+)""")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# Attributes by which a page loads something; `href` of a link only leads somewhere.
_LOADING = {"src", "srcset", "poster", "data", "action", "formaction", "xlink:href"}
_LOADING_RELATIONS = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "manifest",
}
_LOADED_BY_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_COMMAND_SECONDS = 240.0
_NOT_RUN = re.compile(r"<!-- not run: .+ -->$")
_FILE_ABOVE = re.compile(r"\b(?P<how>into|to) `(?P<name>[\w./-]+)`:$")
_FILE_INSIDE = re.compile(r"# (?P<name>\w+\.py)\n")


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a reader of a page does: types `command`, or, where that is empty, writes `text` into `file`, or appends it."""

    line: int
    command: str = ""
    file: str = ""
    text: str = ""
    appended: bool = False

    def write(self, folder: Path) -> None:
        """Writes or appends to `file` in this folder."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if self.appended else "w", encoding="utf-8") as file:
            file.write(self.text)


def steps(page: str) -> Iterator[Step]:
    """What a page tells to do, in its order. Raises ValueError for a block that is neither a file nor commands, and not marked."""
    for block in _BLOCK.finditer(page):
        text = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        line = page.count("\n", 0, block.start("text"))
        before = page[: block.start()].removesuffix("\n").rpartition("\n")[2]
        if _NOT_RUN.search(before):
            continue
        name = _FILE_ABOVE.search(before) or _FILE_INSIDE.match(text)
        if block["kind"] == "console":
            lines = enumerate(text.splitlines(), line + 1)
            yield from (Step(line=number, command=one[2:]) for number, one in lines if one.startswith("$ "))
        elif name:
            yield Step(line=line, file=name["name"], text=text, appended=name.groupdict().get("how") == "to")
        else:
            raise ValueError(
                f"line {line}: the block has no file to write it into, no commands and no <!-- not run: REASON -->"
            )


class Shell:
    """One bash in which commands are typed one after the other, so that variables, aliases and the folder stay. A context manager.

    Output is that of both streams. Standard input of a command is empty.
    """

    _END = "--end-of-command--"

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**environment, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.types("shopt -s expand_aliases")

    def types(self, command: str, code: int = 0) -> str:
        """What a command printed. Raises AssertionError when its exit code is not `code`, and when it has not ended after four minutes."""
        assert self._process.stdin and self._process.stdout
        # In braces a command has an input of its own, and changes the shell nevertheless.
        self._process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n%s %s\\n' {self._END} $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        late = threading.Timer(_COMMAND_SECONDS, self._end)
        late.start()
        try:
            for line in self._process.stdout:
                if line.startswith(self._END):
                    assert int(line.split()[1]) == code, f"{command}: exit {line.split()[1]}\n{''.join(lines)}"
                    return "".join(lines).removesuffix("\n")
                lines.append(line)
        finally:
            late.cancel()
        raise AssertionError(f"{command}: the shell has ended\n{''.join(lines)}")

    def _end(self) -> None:
        # What runs in the background is of the same session.
        os.killpg(self._process.pid, signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._process.communicate()


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as a repository's page and the site make them, and those written as HTML."""
    prose = _FENCED.sub("", _COMMENT.sub("", text))
    headings = (_LINK_TEXT.sub(r"\1", heading) for heading in _HEADING.findall(prose))
    names = (re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings)
    return {*names, *_HTML_ANCHOR.findall(prose)}


def links(text: str) -> list[str]:
    """The targets of a document's links and pictures, without what is in code."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", _COMMENT.sub("", text))))


def dead_links(document: Path) -> list[str]:
    """The links of a document to a file or an anchor that does not exist. Links to other hosts are not followed."""
    dead = []
    for link in links(document.read_text(encoding="utf-8")):
        address = urlsplit(link)
        if address.scheme or address.netloc:
            continue
        target = document.parent / unquote(address.path) if address.path else document
        if not target.exists() or (
            address.fragment
            and target.suffix == ".md"
            and unquote(address.fragment) not in anchors(target.read_text(encoding="utf-8"))
        ):
            dead.append(link)
    return dead


@dataclass(eq=False)
class Page(HTMLParser):
    """What a page of a built site has in it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> "Page":
        page = cls()
        page.feed(path.read_text(encoding="utf-8"))
        return page

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes.update(given.get("class", "").split())
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        self.loaded += [value for name, value in given.items() if name in _LOADING]
        self.loaded += _LOADED_BY_CSS.findall(given.get("style", ""))
        if tag == "link" and _LOADING_RELATIONS & set(given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


class BuiltSite:
    """The folder of a built site, each page parsed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pages = {path: Page.read(path) for path in sorted(folder.rglob("*.html"))}

    def dead_links(self) -> list[str]:
        """`page: link` of each link inside the site to a page, a file or an anchor that does not exist."""
        return [
            f"{path.relative_to(self._folder)}: {link}"
            for path, page in self.pages.items()
            for link in page.links
            if not self._leads_somewhere(path, link)
        ]

    def loaded_from_elsewhere(self) -> list[str]:
        """`file: address` of what pages and style sheets load from another host."""
        pages = [(path, one) for path, page in self.pages.items() for one in page.loaded if urlsplit(one).netloc]
        sheets = [
            (path, one)
            for path in sorted(self._folder.rglob("*.css"))
            for one in _LOADED_BY_CSS.findall(path.read_text(encoding="utf-8"))
        ]
        return [f"{path.relative_to(self._folder)}: {one}" for path, one in pages + sheets]

    def _leads_somewhere(self, path: Path, link: str) -> bool:
        address = urlsplit(link)
        if address.scheme or address.netloc:
            return True
        base = self._folder if address.path.startswith("/") else path.parent
        target = (base / unquote(address.path).lstrip("/")).resolve() if address.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            return False
        page = self.pages.get(target)
        return not address.fragment or page is None or unquote(address.fragment) in page.ids

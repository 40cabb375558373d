"""Documents in Markdown as data: their headings' anchors and their links, in the files and in the site made of them."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
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

"""A dead link, a missing anchor and a file of another host are found, in documents and in a built site."""

from pathlib import Path

import pytest

from toban_testing.documents import BuiltSite, anchors, dead_links

pytestmark = pytest.mark.long


def test_anchors_are_those_of_a_repository_page() -> None:
    text = "# The `toban` command\n```\n# no heading\n```\n## A, B & C: [one_two](x.md)\n<a id=own></a>\n"
    assert anchors(text) == {"the-toban-command", "a-b--c-one_two", "own"}


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

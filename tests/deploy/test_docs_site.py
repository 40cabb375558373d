"""The site of the documents as `make docs-site` has built it: every link works, and no page loads anything from another host."""

from pathlib import Path

import pytest

from toban_testing.documents import BuiltSite

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs-site"


@pytest.fixture(scope="module")
def site() -> BuiltSite:
    if not SITE.exists():
        pytest.skip("make docs-site builds it")
    return BuiltSite(SITE)


def test_each_document_is_a_page(site: BuiltSite) -> None:
    documents = [path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")]
    pages = {
        SITE / one / "index.html" if one.name != "index" else SITE / one.parent / "index.html" for one in documents
    }
    assert pages <= set(site.pages)


def test_each_link_leads_to_a_page_and_an_anchor(site: BuiltSite) -> None:
    assert site.dead_links() == []


def test_no_page_loads_anything_from_another_host(site: BuiltSite) -> None:
    assert site.loaded_from_elsewhere() == []
    # The theme's script fetches a library from another host for a page that has an element of one of these classes.
    assert [page for page, found in site.pages.items() if found.classes & {"mermaid", "pyodide", "glightbox"}] == []


def test_search_and_a_switch_of_the_theme_are_on_each_page(site: BuiltSite) -> None:
    assert (SITE / "search.json").stat().st_size > 100_000
    for path, page in site.pages.items():
        assert {"__search", "__palette_0", "__palette_1", "__palette_2"} <= page.ids, path

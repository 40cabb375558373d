import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.traceparent import TraceContext, of_run, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_header_there_and_back() -> None:
    context = parse(f"00-{TRACE}-{SPAN}-01")
    assert context == TraceContext(TRACE, SPAN, sampled=True)
    assert context is not None and context.header == f"00-{TRACE}-{SPAN}-01"
    assert parse(f"00-{TRACE}-{SPAN}-00") == TraceContext(TRACE, SPAN, sampled=False)
    # A later version may say more; its first parts mean the same.
    assert parse(f"cc-{TRACE}-{SPAN}-01-what-comes") == context


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_none(header: str) -> None:
    assert parse(header) is None


@given(st.text())
def test_nothing_breaks_it(text: str) -> None:
    assert parse(text) is None or text.isascii()


def test_a_run_has_one_trace_and_no_other_has_it() -> None:
    assert of_run("c", 7) == of_run("c", 7)
    assert len({of_run(cluster, run) for cluster in ("a", "b") for run in range(100)}) == 200
    assert parse(of_run("c", 7).header) == of_run("c", 7)

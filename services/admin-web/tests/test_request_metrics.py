"""Metrics of requests."""

from __future__ import annotations

from typing import Any

from toban_observability import metrics


def test_requests_are_counted_by_view(web: Any) -> None:
    web.get("/runs/1")
    web.get("/nope/" + "x" * 50)
    text = metrics.exposition().decode()
    assert 'toban_site_requests_total{status="200",view="runs.show"}' in text
    assert 'toban_site_requests_total{status="404",view="none"}' in text
    assert "nope" not in text and "/runs" not in text

"""Who leads, as the bar of each page shows it, and what it costs."""

from __future__ import annotations

import re
from typing import Any

from toban_admin_web.decide.api_models import Cluster
from toban_admin_web.views import leader_pill
from toban_admin_web.views.leader_pill import LeaderPill
from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb


class Watch:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


def pill(page: str) -> str:
    [(kind, text)] = re.findall(r'<a class="leader-pill ([a-z]*)".*?>(.*?)</a>', page, re.DOTALL)
    return f"{kind} {re.sub('<[^>]*>', '', text)}".strip()


def asked(web: Any) -> int:
    return len(web.asked(pb.GetClusterRequest))


def test_pages_share_one_read(web: Any) -> None:
    web.cluster.reader.responses["GetCluster"] = web.whole(epoch=Epoch(1, 3).pack())
    for path in ("/jobs", "/runs", "/runs?part=1", "/settings"):
        assert "127.0.0.1:5000 term 3" in pill(web.page(path))
    assert asked(web) == 1


def test_a_page_that_reads_the_cluster_is_the_read(web: Any) -> None:
    web.page("/cluster")
    web.page("/jobs")
    assert asked(web) == 1


def test_it_is_red_without_a_leader(web: Any) -> None:
    web.cluster.reader.responses["GetCluster"] = web.whole(leader_address="")
    assert pill(web.page("/jobs")).startswith("bad no leader")


def test_coordinators_that_are_away_are_asked_once(web: Any) -> None:
    web.refuse("GetCluster", ErrorCode.UNAVAILABLE)
    assert pill(web.page("/jobs")).startswith("bad no answer")
    before = asked(web)
    assert pill(web.page("/runs")).startswith("bad no answer") and asked(web) == before
    web.refuse("ListJobs", ErrorCode.UNAVAILABLE)
    response = web.get("/jobs")
    assert response.status_code == 503 and pill(response.get_data(as_text=True)).startswith("bad no answer")


def test_an_error_page_sends_no_read(web: Any) -> None:
    assert web.get("/nothing").status_code == 404
    assert asked(web) == 0


def test_an_old_answer_is_no_answer() -> None:
    watch = Watch()
    kept = LeaderPill(clock=watch)  # type: ignore[arg-type]
    assert kept.now(None).status == "unknown"
    cluster = Cluster.model_construct(leader_address="", epoch=str(Epoch(1, 3).pack()))
    kept.take(cluster)
    assert kept.now(None).status == "none"
    watch.seconds += leader_pill.STALE_SECONDS + 1
    assert kept.now(None).status == "away"
    assert kept.now(lambda: cluster).status == "none", "it is asked again"

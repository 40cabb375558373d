"""The client of the API of Kubernetes and the settings for it, against a fake API."""

from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.adapters.kubernetes_client import Api, Cluster
from toban_executor.adapters.kubernetes_steps import KubernetesSettings, KubernetesSteps
from toban_executor.decide.kubernetes_job import INCARNATION, OWNER, RUN, TOKEN
from toban_testing.fake_cluster import waiting_job
from toban_testing.fake_kubernetes import TOKEN as BEARER
from toban_testing.fake_kubernetes import FakeKubernetes


def settings(server: FakeKubernetes, **more: Any) -> KubernetesSettings:
    given = {
        "api": server.url,
        "token_file": server.folder / "token",
        "ca_file": server.folder / "ca.crt",
        "owner": "toban",
        "namespaces": "batch",
        "images": "*",
        "service_accounts": "",
        "margin": 20.0,
        "settle": 1.0,
    }
    return KubernetesSettings(**given | more)


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"api": "http://a"}, ErrorCode.CONFIG_INVALID, "does not begin with https://"),
        ({"namespaces": ""}, ErrorCode.CONFIG_INVALID, "SCHEDULER_KUBERNETES_NAMESPACES is empty"),
        ({"namespaces": "A"}, ErrorCode.CONFIG_INVALID, "SCHEDULER_KUBERNETES_NAMESPACES: 'A' is no name"),
        ({"owner": "a b"}, ErrorCode.CONFIG_INVALID, "SCHEDULER_KUBERNETES_OWNER: 'a b' is no name"),
        ({"images": " "}, ErrorCode.CONFIG_INVALID, "SCHEDULER_KUBERNETES_IMAGES is empty"),
        ({"token_file": Path("/none")}, ErrorCode.UNAVAILABLE, "No such file"),
        ({"ca_file": Path("/etc/ssl/certs/ca-certificates.crt")}, ErrorCode.UNAVAILABLE, "certificate verify failed"),
        ({"api": "https://127.0.0.1:1"}, ErrorCode.UNAVAILABLE, "Connection refused"),
    ],
)
def test_settings_that_cannot_be_used(api: FakeKubernetes, more: Any, code: ErrorCode, words: str) -> None:
    with pytest.raises(TobanError) as caught:
        KubernetesSteps(settings(api, **more), incarnation="i")
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message


def test_an_executor_without_the_rights_does_not_start(api: FakeKubernetes) -> None:
    (api.folder / "token").write_text("another")
    with pytest.raises(TobanError, match="Unauthorized") as caught:
        KubernetesSteps(settings(api), incarnation="i")
    assert caught.value.code == ErrorCode.CONFIG_INVALID


def test_pods_that_do_not_end_are_not_attested(api: FakeKubernetes) -> None:
    api.cluster.create(waiting_job("a", {OWNER: "toban", RUN: "5", TOKEN: "4", INCARNATION: "old"}))
    api.cluster.set_node(down=True)
    steps = KubernetesSteps(settings(api, margin=0.5), incarnation="new")
    assert steps.end_earlier(["old", "older"], stopped=lambda: False) == {"old"}
    assert KubernetesSteps(settings(api, margin=600.0), incarnation="new").end_earlier(
        ["old"], stopped=lambda: True
    ) == {"old"}
    api.cluster.set_node(down=False)
    assert steps.end_earlier(["old"], stopped=lambda: False) == set()


def test_what_is_left_of_many_attempts_is_asked_for_at_once(api: FakeKubernetes) -> None:
    for number in (4, 5, 6):
        api.cluster.create(waiting_job(f"job-{number}", {OWNER: "toban", RUN: "1", TOKEN: str(number)}))
    api.cluster.set_node(down=True)
    steps = KubernetesSteps(settings(api), incarnation="i")
    first, second, gone = AttemptKey(1, 4), AttemptKey(1, 6), AttemptKey(1, 7)
    before = len(api.requests)
    left = steps.remove([first, second, gone])
    assert left.keys() == {first, second}
    assert all("Job batch/" in words[0] and "pod batch/" in words[1] for words in left.values())
    assert [method for method, _, _ in api.requests[before:]] == ["GET", "DELETE", "DELETE", "GET"]
    assert ["deletionTimestamp" in job["metadata"] for job in api.cluster.all("jobs")] == [True, False, True]


def test_a_server_that_is_slow_counts_as_one_that_does_not_respond(
    api: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toban_executor.adapters.kubernetes_client.SECONDS", 0.3)
    api.faults.append(lambda method, path: "hang")
    with pytest.raises(TobanError, match="timed out") as caught:
        KubernetesSteps(settings(api), incarnation="i")
    assert caught.value.code == ErrorCode.UNAVAILABLE


def test_the_token_is_read_for_each_request(api: FakeKubernetes) -> None:
    token = api.folder / "token"
    client = Api(Cluster(api.url, str(token), str(api.folder / "ca.crt")))
    token.write_text("old")
    with pytest.raises(Exception, match="Unauthorized"):
        client.job("batch", "a")
    token.write_text(BEARER)
    assert client.job("batch", "a") is None

"""Prometheus metrics of this process: one registry, names `toban_*`, each declared once next to the code that updates it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=True)
"""Everything that /metrics exposes. The library's default registry is not used: other libraries may register metrics there."""
ProcessCollector(namespace="toban", registry=REGISTRY)
# prometheus_client adds a `_created` gauge to each counter and histogram: many series that no query uses.
disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets in seconds for calls, turns and transactions."""

CONTENT_TYPE = CONTENT_TYPE_LATEST

_fillers: list[Callable[[], None]] = []
_leader_gauges: "list[LeaderGauge]" = []


def counter(name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
    """A monotonically increasing number; its name ends in `_total`."""
    if not name.endswith("_total"):
        raise ValueError(f"counter {name!r} must end in _total")
    return Counter(_checked(name), meaning, labels, registry=REGISTRY)


def gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
    """A number that can increase and decrease."""
    return Gauge(_checked(name), meaning, labels, registry=REGISTRY)


def histogram(name: str, meaning: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> Histogram:
    """A distribution, in seconds unless its name says otherwise."""
    return Histogram(_checked(name), meaning, labels, registry=REGISTRY, buckets=buckets)


class LeaderGauge(Collector):
    """A gauge of the whole cluster, exposed by the leader only: another process does not expose it, not even as 0."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        self._name = name
        self._meaning = meaning
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, *labels: str) -> None:
        """Sets the value of one series."""
        self._values[labels] = value

    def set_all(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replaces all series."""
        self._values = dict(values)

    def clear(self) -> None:
        """Removes all series."""
        self._values = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metric without values, for the registry."""
        yield GaugeMetricFamily(self._name, self._meaning, labels=self._labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metric with its current series."""
        family = GaugeMetricFamily(self._name, self._meaning, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


def leader_gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> LeaderGauge:
    """A gauge that only the leader exposes."""
    gauge_ = LeaderGauge(_checked(name), meaning, labels)
    REGISTRY.register(gauge_)
    _leader_gauges.append(gauge_)
    return gauge_


def clear_leader_gauges() -> None:
    """Clears every leader gauge when this process's term ends: the next leader exposes its own."""
    for leader_gauge_ in _leader_gauges:
        leader_gauge_.clear()


def samples(name: str) -> list[tuple[Mapping[str, str], float]]:
    """Labels and value of each series of a counter or gauge, for checks of this process; empty when it is not declared."""
    found = REGISTRY.restricted_registry([name]).collect()
    return [(sample.labels, sample.value) for metric in found for sample in metric.samples if sample.name == name]


def on_scrape(fill: Callable[[], None]) -> None:
    """Registers `fill`, which is called before each exposition: for gauges whose value is kept elsewhere. It must not block."""
    _fillers.append(fill)


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    for fill in _fillers:
        fill()
    return generate_latest(REGISTRY)


def _checked(name: str) -> str:
    if not name.startswith("toban_"):
        raise ValueError(f"metric {name!r} must start with toban_")
    return name


_build_info = gauge(
    "toban_build_info", "Always 1; the labels name the service and its version.", ("service", "version")
)


def build_info(service: str, version: str) -> None:
    """Sets the service and version of this process."""
    _build_info.labels(service, version).set(1)

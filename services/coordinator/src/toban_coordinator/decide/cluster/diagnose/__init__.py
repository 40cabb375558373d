"""What `toban doctor` concludes from what a coordinator knows: small functions from facts to findings, each check by its name."""

from toban_coordinator.decide.cluster.diagnose.certificate import certificate
from toban_coordinator.decide.cluster.diagnose.database import (
    MigrationFacts,
    RedisFacts,
    ServerFacts,
    migrations,
    partitions,
    redis,
    server,
    standbys,
    unreachable,
)
from toban_coordinator.decide.cluster.diagnose.executor_groups import GroupFacts, executor_groups
from toban_coordinator.decide.cluster.diagnose.fleet import (
    CoordinatorFacts,
    ExecutorFacts,
    LeaderFacts,
    RefusedEpoch,
    coordinators,
    epochs,
    executors,
    leader,
)
from toban_coordinator.decide.cluster.diagnose.isolation import IsolatedJobs, isolated_jobs
from toban_coordinator.decide.cluster.diagnose.secret_keys import secret_keys
from toban_coordinator.decide.cluster.diagnose.work import WorkFacts, work
from toban_domain.finding import Finding

__all__ = [
    "CoordinatorFacts",
    "ExecutorFacts",
    "Finding",
    "GroupFacts",
    "IsolatedJobs",
    "LeaderFacts",
    "MigrationFacts",
    "RedisFacts",
    "RefusedEpoch",
    "ServerFacts",
    "WorkFacts",
    "certificate",
    "coordinators",
    "epochs",
    "executor_groups",
    "executors",
    "isolated_jobs",
    "leader",
    "migrations",
    "partitions",
    "redis",
    "secret_keys",
    "server",
    "standbys",
    "unreachable",
    "work",
]

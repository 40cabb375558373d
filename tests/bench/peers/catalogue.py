"""The peers: what each needs, and how its documents recommend to run 32 subprocesses at once on two cores."""

from dataclasses import dataclass

SLOTS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer. `workers` are programs of its environment with their arguments; `setup` runs once before them.

    `due_worker` is the program that has schedules, which are made before it starts; with `schedules` the producer
    makes them. A peer without either has none that are made ahead: Huey, Procrastinate and Dramatiq have functions of a
    process that are called periodically, RQ one time for each job.
    """

    name: str
    packages: tuple[str, ...]
    server: str
    workers: tuple[tuple[str, ...], ...] = ()
    setup: tuple[str, ...] = ()
    due_worker: tuple[str, ...] = ()
    schedules: bool = False

    @property
    def has_schedules(self) -> bool:
        """Whether it has schedules that are made ahead."""
        return self.schedules or bool(self.due_worker)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="huey",
            packages=("huey", "redis"),
            server="redis",
            workers=(("huey_consumer", "huey_app.app", "-k", "thread", "-w", str(SLOTS), "-q"),),
        ),
        Peer(
            name="celery",
            packages=("celery[redis]",),
            server="redis",
            workers=(("celery", "-A", "celery_app", "worker", "-P", "threads", "-c", str(SLOTS), "-l", "ERROR"),),
            due_worker=("celery", "-A", "celery_app", "beat", "-l", "ERROR", "-s", "beat", "--pidfile="),
        ),
        Peer(
            name="procrastinate",
            packages=("procrastinate", "psycopg[binary]"),
            server="postgres",
            workers=(
                ("procrastinate", "--app=procrastinate_app.app", "worker", f"--concurrency={SLOTS // 2}"),
                ("procrastinate", "--app=procrastinate_app.app", "worker", f"--concurrency={SLOTS // 2}"),
            ),
            setup=("procrastinate", "--app=procrastinate_app.app", "schema", "--apply"),
        ),
        Peer(
            name="rq",
            packages=("rq",),
            server="redis",
            workers=(("rq", "worker-pool", "-n", str(SLOTS), "-w", "rq.SimpleWorker", "-q"),),
        ),
        Peer(
            name="dramatiq",
            packages=("dramatiq[redis]",),
            server="redis",
            workers=(("dramatiq", "dramatiq_app", "-p", "2", "-t", str(SLOTS // 2)),),
        ),
        Peer(
            name="apscheduler",
            packages=("apscheduler", "sqlalchemy", "psycopg[binary]"),
            server="postgres",
            schedules=True,
        ),
    )
}


def chosen(names: str) -> list[Peer]:
    """Those of PEERS="name name", all without it. Raises ValueError."""
    wanted = names.split() or list(PEERS)
    if unknown := [name for name in wanted if name not in PEERS]:
        raise ValueError(f"PEERS={names!r}: {', '.join(unknown)} is no peer; there are {', '.join(PEERS)}")
    return [PEERS[name] for name in wanted]

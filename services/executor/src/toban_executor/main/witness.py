"""``python -m toban_executor witness``: started by the guards of an executor that has died, in a fresh interpreter (docs/fencing.md 3.8).

It registers nothing and starts nothing. It lives until it is done, at most a little longer than the lease; an executor that starts on the same
state directory ends it and does what is left.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from toban_domain.errors import TobanError
from toban_executor.adapters.coordinator_client import CoordinatorClient
from toban_executor.adapters.crash_recovery import recover_messages
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import ArchiverClient, Packer
from toban_executor.adapters.state_dir import StateDir
from toban_executor.app.outcome_reporter import OutcomeReporter
from toban_executor.app.witness import Witness
from toban_executor.guard.witness import OUTCOMES_ONLY, WITNESS_FD, WitnessCredentials, read
from toban_executor.loops.log_shipper import LogShipper
from toban_observability.context import bind_log_context
from toban_observability.logs import get_logger, setup_logging
from toban_runtime.backoff import Backoff
from toban_runtime.clock import SystemClock
from toban_transport.channel import ChannelPool
from toban_transport.tls import TlsFiles

BEYOND_LEASE_SECONDS = 5.0
"""So much longer than a lease a witness tries: from then on the runs restart without it."""
HANG_SECONDS = 5
"""After these, on top, the kernel ends a witness that hangs."""
_log = get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Report and attest; the exit code. Errors are logged, because no process waits for this one."""
    try:
        credentials = read(WITNESS_FD)
        os.close(WITNESS_FD)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"toban_executor witness is started by the guards of an executor, not by hand: {error}\n")
        return os.EX_USAGE
    setup_logging("executor", credentials.log_format, credentials.log_level, sys.stderr)
    # In every line: a machine can have several executors, and so several witnesses.
    bind_log_context(incarnation=credentials.incarnation)
    seconds = credentials.lease_seconds + BEYOND_LEASE_SECONDS
    signal.setitimer(signal.ITIMER_REAL, seconds + HANG_SECONDS)
    state = StateDir(Path(credentials.state_dir))
    try:
        if not state.lock_as_witness():
            _log.info("an executor has the state directory already: no witness is needed")
            return 0
        asyncio.run(_run(credentials, state.path, proven=OUTCOMES_ONLY not in arguments, seconds=seconds))
    except (OSError, TobanError) as error:
        _log.error("the death of an executor cannot be attested; its lease ends by itself", error=str(error))
    return 0


async def _run(credentials: WitnessCredentials, state_dir: Path, *, proven: bool, seconds: float) -> None:
    clock = SystemClock()
    channels = ChannelPool(tls=TlsFiles(Path(credentials.tls_dir)), trust_domain=credentials.trust_domain)
    gateway = CoordinatorClient(
        channels=channels, addresses=credentials.coordinators, incarnation=credentials.incarnation, clock=clock
    )
    gateway.authenticate(credentials.key)
    journal = Journal(state_dir / "journal.sqlite3")
    complete = recover_messages(state_dir / "guards", journal, Packer())
    reporter = OutcomeReporter(gateway=gateway, journal=journal, wake=lambda: None, clock=clock)
    reporter.restore(journal.remembered())
    journal.start()
    witness = Witness(
        gateway=gateway,
        reporter=reporter,
        instance_secret=credentials.instance_secret,
        nonce=credentials.nonce,
        proven=proven and complete,
        clock=clock,
        backoff=Backoff(base=0.1, cap=1.0),
    )
    try:
        async with asyncio.timeout(seconds):
            archivers = await witness.run()
            known = archivers or credentials.log_archivers
            await _ship(journal, ArchiverClient(channels=channels, addresses=known, keys=gateway))
    except TimeoutError:
        _log.error("the witness of a dead executor gave up; what is left is for the next start", seconds=seconds)
    finally:
        await channels.close()
        journal.close()


async def _ship(journal: Journal, archivers: ArchiverClient) -> None:
    """The lines that the dead executor left. What is not delivered stays in the journal for the next executor on this state directory."""
    try:
        if chunks := await LogShipper(journal=journal, archivers=archivers).run_once():
            _log.info("log lines of a dead executor delivered", chunks=chunks)
    except TobanError as error:
        _log.warning("log lines of a dead executor stay in its journal for its next start", error=error.message)

"""An external worker: it claims steps of type word-count, does them and completes them.

Usage: TOBAN_TLS_DIR=<folder of the external-worker certificate> worker.py COORDINATOR[,COORDINATOR...] [STEPS]
It ends after STEPS steps, or never. Needs grpcio and the package toban_proto (libs/proto).
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import grpc

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc

WORKER = f"{socket.gethostname()}:{os.getpid()}"
WORKER_TYPE = "word-count"
TRUST_DOMAIN = os.environ.get("TOBAN_TRUST_DOMAIN", "toban.internal")
PAUSE_SECONDS = 1.0


class Stopped(Exception):
    """The claim is lost, or its run is canceled: nothing more may be done for it."""


class Claim:
    """A claimed step. A thread extends its lock three times in each lock; `check` says whether the work may go on."""

    def __init__(self, stub: rpc.ExternalWorkStub, step: pb.ClaimedStep, sent: float) -> None:
        self.step, self.canceled, self._stub = step, False, stub
        self._hold = (step.lock_ttl_ms - step.lock_margin_ms) / 1000
        self._until = sent + self._hold
        self._last = sent + step.timeout_ms / 1000 if step.timeout_ms else float("inf")
        self._over = threading.Event()
        threading.Thread(target=self._extend, daemon=True).start()

    def check(self) -> None:
        """Raises Stopped when the work must end. Call it often, and before anything that others see."""
        if self.canceled or time.monotonic() >= min(self._until, self._last):
            raise Stopped

    def end(self) -> None:
        """No more heartbeats."""
        self._over.set()

    def _extend(self) -> None:
        while not self._over.wait(self.step.lock_ttl_ms / 3000):
            sent = time.monotonic()
            with contextlib.suppress(grpc.RpcError):  # the lock holds until its end; the next heartbeat may arrive
                beat = pb.ExternalHeartbeatRequest(worker=WORKER, keys=[self.step.key])
                answer = self._stub.Heartbeat(beat, timeout=5.0)
                self.canceled = self.canceled or bool(answer.cancel)
                if answer.lost:
                    self._until = 0.0
                else:
                    # By its own clock, from when the heartbeat was sent: never from when it was answered.
                    self._until = sent + self._hold


def work(claim: Claim) -> dict[str, int]:
    """The work itself."""
    words = 0
    for word in json.loads(claim.step.payload_json)["text"].split():
        claim.check()
        words += bool(word)
    return {"words": words}


def serve(stub: rpc.ExternalWorkStub) -> bool:
    """Waits for a step and does it; False when there was none."""
    sent = time.monotonic()
    request = pb.ClaimRequest(worker=WORKER, worker_type=WORKER_TYPE, limit=1, wait_seconds=25)
    for step in stub.Claim(request, timeout=30.0).steps:
        claim = Claim(stub, step, sent)
        try:
            result = json.dumps(work(claim))
            claim.check()
            done = pb.CompleteRequest(worker=WORKER, steps=[pb.CompletedStep(key=step.key, result_json=result)])
            print(f"run {step.key.run_id}: {stub.Complete(done, timeout=10.0).answers[0].result}", flush=True)
        except Stopped:
            if claim.canceled:
                stub.AcknowledgeCancel(pb.AcknowledgeCancelRequest(worker=WORKER, key=step.key), timeout=10.0)
        except grpc.RpcError:
            raise
        except Exception as error:
            failed = pb.FailRequest(worker=WORKER, key=step.key, error=str(error), retryable=True)
            stub.Fail(failed, timeout=10.0)
        finally:
            claim.end()
        return True
    return False


def connect(address: str) -> rpc.ExternalWorkStub:
    """A stub of one coordinator. Any of them answers every call."""
    folder = Path(os.environ.get("TOBAN_TLS_DIR", "/etc/scheduler/tls"))
    ca, key, certificate = ((folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    options = [("grpc.ssl_target_name_override", f"coordinator.{TRUST_DOMAIN}")]
    return rpc.ExternalWorkStub(
        grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate), options)
    )


def main() -> None:
    """Serves, and goes on with the next coordinator when one does not answer or refuses."""
    if len(sys.argv) < 2:
        sys.exit(
            "usage: worker.py COORDINATOR[,COORDINATOR...] [STEPS]; `make status` shows the addresses of coordinators"
        )
    stubs = [connect(address) for address in sys.argv[1].split(",")]
    left = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    while left:
        try:
            left -= serve(stubs[0])
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}; next try in {PAUSE_SECONDS:g} s", flush=True)
            stubs.append(stubs.pop(0))
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()

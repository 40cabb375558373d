"""A private S3: SeaweedFS in one process on loopback, with generated keys and without its telemetry."""

import json
import os
import socket
from pathlib import Path

from toban_runtime.private_file import write_private
from toban_stack.certs import VALIDITY, make_ca, reissue
from toban_stack.ports import PortBook
from toban_stack.processes import Program
from toban_stack.servers.binaries import find_weed
from toban_stack.stack_paths import StackPaths

BUCKET = "toban-logs"
REGION = "us-east-1"
COMPONENTS = ("master", "volume", "filer")
# Workers of SeaweedFS expect the gRPC port of its admin server at this distance; no flag changes it.
GRPC_OFFSET = 10_000
# The names of its parts in its settings for gRPC, as servers and as callers.
GRPC_PARTS = ("S3", "MASTER", "VOLUME", "FILER", "CLIENT", "ADMIN", "WORKER")
# It mostly stops within two seconds. Filer and volume server, one after the other, each wait up to 15 s for a request under way, and 5 s
# for a connection that has not sent anything yet.
STOP_SECONDS = 35.0


def identities(access_key: str, secret_key: str) -> str:
    """Content of the identities file of SeaweedFS: one account that may do everything."""
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return json.dumps({"identities": [{"name": "toban", "credentials": credentials, "actions": actions}]})


class S3Server:
    """One SeaweedFS with its data in the stack's folder."""

    name = "s3"

    def __init__(self, *, home: StackPaths, ports: PortBook, in_use: bool = False) -> None:
        self._home = home
        self.binary = find_weed()
        self._ports = {"s3.port": ports.port("s3", in_use=in_use)}
        for component in ("s3", *COMPONENTS):
            self._ports.setdefault(f"{component}.port", ports.port(f"s3-{component}", in_use=in_use))
            self._ports[f"{component}.port.grpc"] = ports.port(f"s3-{component}-grpc", in_use=in_use)
        self._ports["admin.port"] = ports.port("s3-admin", in_use=in_use, companion_offset=GRPC_OFFSET)

    @property
    def address(self) -> str:
        """host:port of the S3 API."""
        return f"127.0.0.1:{self._ports['s3.port']}"

    @property
    def url(self) -> str:
        """The endpoint URL; its keys are `access_key` and `secret_key`."""
        return f"http://{self.address}"

    @property
    def description(self) -> str:
        """The name of the program, for people."""
        return "SeaweedFS"

    @property
    def access_key(self) -> str:
        """The generated access key."""
        return self._home.secret("s3-access-key", 10)

    @property
    def secret_key(self) -> str:
        """The generated secret key."""
        return self._home.secret("s3-secret-key", 20)

    def prepare(self) -> str:
        """Writes the identities file (mode 0600), and makes a certificate that only the parts of the server have."""
        (self._home.data / "s3").mkdir(mode=0o700, exist_ok=True)
        write_private(self._config, identities(self.access_key, self.secret_key))
        # An authority of its own: the certificate of no service, and so of no executor, opens these ports.
        reissue(make_ca(self._tls), "s3", self._tls, validity=VALIDITY)
        return ""

    def before_start(self) -> None:
        """Nothing: the sockets of a killed server are leftovers of its program."""

    def program(self) -> Program:
        """The program to start."""
        options: dict[str, object] = {
            "dir": self._home.data / "s3",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "s3.config": self._config,
            "bucket": BUCKET,
            "webdav": "false",
            "admin.ui": "false",
            # Master and file server would serve files, and delete all of them, without a key to each process of this machine.
            "disableHttp": "true",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "volume.preStopSeconds": 0,
            **self._sockets,
            **self._ports,
        }
        return Program(
            name=self.name,
            role="object store",
            argv=(str(self.binary), "mini", *(f"-{key}={value}" for key, value in options.items())),
            environment={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self._home.run),
                "TMPDIR": str(self._home.sockets),
                **self._credentials,
            },
            log=self._home.log_file(self.name),
            address=self.address,
            grace_seconds=STOP_SECONDS,
            leftovers=tuple(str(path) for path in (*self._sockets.values(), *self._fixed_sockets)),
        )

    def ready(self) -> bool:
        """Whether the S3 API answers HTTP."""
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=1) as connection:
                connection.sendall(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return connection.recv(16).startswith(b"HTTP/1.")
        except OSError:
            return False

    @property
    def _credentials(self) -> dict[str, str]:
        """What the ports of its parts ask for: a certificate (gRPC), and a token signed by one of these keys (HTTP)."""
        keys = {
            "SIGNING": "volume",
            "SIGNING_READ": "volume-read",
            "FILER_SIGNING": "filer",
            "FILER_SIGNING_READ": "filer-read",
        }
        return {
            **{f"WEED_JWT_{use}_KEY": self._home.secret(f"s3-{name}-key", 32) for use, name in keys.items()},
            "WEED_GRPC_CA": str(self._tls / "ca.crt"),
            **{f"WEED_GRPC_{part}_CERT": str(self._tls / "tls.crt") for part in GRPC_PARTS},
            **{f"WEED_GRPC_{part}_KEY": str(self._tls / "tls.key") for part in GRPC_PARTS},
        }

    @property
    def _tls(self) -> Path:
        return self._home.secrets / "s3-tls"

    @property
    def _config(self) -> Path:
        return self._home.secrets / "s3.json"

    @property
    def _sockets(self) -> dict[str, Path]:
        return {f"{component}.localSocket": self._home.sockets / f"{component}.sock" for component in ("s3", "filer")}

    @property
    def _fixed_sockets(self) -> list[Path]:
        """Sockets that SeaweedFS always makes in /tmp and sometimes leaves there."""
        ports = {component: self._ports[f"{component}.port.grpc"] for component in ("s3", *COMPONENTS)}
        ports["admin"] = self._ports["admin.port"] + GRPC_OFFSET
        return [Path(f"/tmp/seaweedfs-{component}-grpc-{port}.sock") for component, port in ports.items()]

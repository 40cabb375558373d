"""Writes a daily report: disks, memory, load, uptime."""

import os
import subprocess
import time
from pathlib import Path

folder = Path(os.environ.get("TOBAN_PARAM_FOLDER") or Path.home() / "toban-examples" / "reports")
folder.mkdir(parents=True, exist_ok=True)

disks = subprocess.run(
    ["df", "-h", "-x", "tmpfs", "-x", "devtmpfs"], capture_output=True, text=True, check=False
).stdout
memory = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[:3]
up_days = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) / 86400
load = " ".join(f"{value:.2f}" for value in os.getloadavg())

slot = os.environ.get("TOBAN_SLOT") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
report = folder / f"{slot[:10]}.txt"
half = report.with_suffix(f".{os.getpid()}.part")
half.write_text(
    "\n".join([f"Report of {os.uname().nodename} for {slot}", f"up {up_days:.1f} days, load {load}", *memory, disks]),
    encoding="utf-8",
)
half.rename(report)
print(f"wrote {report} ({report.stat().st_size} bytes): up {up_days:.1f} days, load {load}")

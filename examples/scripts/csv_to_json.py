"""Converts a CSV file with a header into a JSON list of objects; numeric text becomes numbers."""

import csv
import json
import os
import sys
from pathlib import Path

source = Path(os.environ.get("TOBAN_PARAM_INPUT", "data/cities.csv"))
output = Path(os.environ.get("TOBAN_PARAM_OUTPUT") or Path.home() / "toban-examples" / f"{source.stem}.json")

if not source.is_file():
    sys.exit(f"{source} is not a file")
with source.open(newline="", encoding="utf-8") as file:
    rows = [
        {key: int(value) if value and value.isdigit() else value for key, value in row.items()}
        for row in csv.DictReader(file)
    ]
output.parent.mkdir(parents=True, exist_ok=True)
half = output.with_suffix(f".{os.getpid()}.part")
half.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
half.rename(output)
print(f"wrote {len(rows)} rows of {source} to {output}")

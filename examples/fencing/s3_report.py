"""A job that replaces a report in S3; an older attempt of it replaces nothing.

Usage: S3_ENDPOINT_URL=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... python s3_report.py BUCKET KEY TEXT
The object is a line with the token, then TEXT. The store has to support If-Match and If-None-Match for writes, as S3 and
SeaweedFS do. Needs boto3.
"""

import os
import sys

import boto3

from toban.fencing import FencedOutError, S3Guard, current_fence


def main() -> None:
    """Writes, if no newer attempt has."""
    bucket, key, text = sys.argv[1:4]
    client = boto3.client("s3", endpoint_url=os.environ.get("S3_ENDPOINT_URL"), region_name="us-east-1")
    S3Guard(client, bucket).put(key, text.encode(), current_fence())
    print(f"wrote {text!r}")


if __name__ == "__main__":
    try:
        main()
    except FencedOutError as error:
        sys.exit(str(error))

"""A job that puts a document on a guarded server; an older attempt of it changes nothing.

Usage: python http_publish.py URL TEXT
"""

import sys
import urllib.error
import urllib.request

from toban.fencing import FencedOutError, check_status, current_fence, http_headers


def main() -> None:
    """Sends the document with the token of this attempt."""
    url, text, fence = sys.argv[1], sys.argv[2], current_fence()
    request = urllib.request.Request(url, data=text.encode(), headers=http_headers(fence), method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10):
            print(f"published {text!r}")
    except urllib.error.HTTPError as error:
        with error:
            check_status(url, error.code, fence, dict(error.headers.items()))
            raise


if __name__ == "__main__":
    try:
        main()
    except FencedOutError as error:
        sys.exit(str(error))

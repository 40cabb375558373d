"""A job that books a payout in PostgreSQL; an older attempt of it books nothing.

Usage: DATABASE_URL=postgresql://... python sql_payout.py ACCOUNT AMOUNT
Tables: payouts (account text, amount int, fence bigint), and what `SqlGuard().ddl` makes.
"""

import os
import sys

import psycopg

from toban.fencing import FencedOutError, SqlGuard, current_fence


def main() -> None:
    """Books, in the transaction that has entered the account."""
    account, amount, fence = sys.argv[1], int(sys.argv[2]), current_fence()
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        SqlGuard().enter(connection, f"payouts of {account}", fence)
        connection.execute("INSERT INTO payouts VALUES (%s, %s, %s)", (account, amount, fence))
    print(f"booked {amount} for {account}")


if __name__ == "__main__":
    try:
        main()
    except FencedOutError as error:
        sys.exit(str(error))

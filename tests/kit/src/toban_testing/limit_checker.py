"""Checks a database after a test: no more live runs than the limits allow, each counted, and none that has ended.

It knows nothing of how the coordinator counts. Only runs that were sent after the last change of a limit or a definition are judged: a smaller
limit lets live runs go on. Runs that ignore limits are left out.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg

# Each row is a fault: what, how much is live, and how much is allowed.
FAULTS: LiteralString = """
WITH live AS MATERIALIZED (
    SELECT r.id, r.token, r.job_name, r.definition_id, r.concurrency_group, r.dispatched_at, r.payload, d.updated_at,
           d.spec -> 'concurrency' AS concurrency
      FROM scheduler.runs_live r JOIN scheduler.job_definitions d ON d.id = r.definition_id
     WHERE r.dispatched_at > d.updated_at AND NOT EXISTS (SELECT 1 FROM scheduler.limit_overrides o WHERE o.run_id = r.id)
), limited AS (
    SELECT r.id, r.token, 'job:' || r.job_name AS key, COALESCE(l.value, (r.concurrency ->> 'limit')::integer) AS allowed
      FROM live r LEFT JOIN scheduler.limits l ON l.name = 'job:' || r.job_name
     WHERE (l.name IS NULL OR r.dispatched_at > l.updated_at) AND COALESCE(l.value, (r.concurrency ->> 'limit')::integer, 0) <> 0
)
SELECT l.key, count(*) AS live, GREATEST(max(l.allowed), 0) AS allowed
  FROM limited l GROUP BY l.key HAVING count(*) > GREATEST(max(l.allowed), 0)
UNION ALL
SELECT 'key:' || r.job_name || '/' || (r.payload -> (r.concurrency ->> 'limit_key'))::text, count(*),
       max((r.concurrency ->> 'limit_per_key')::integer)
  FROM live r WHERE r.concurrency ? 'limit_per_key'
 GROUP BY 1 HAVING count(*) > max((r.concurrency ->> 'limit_per_key')::integer)
UNION ALL
SELECT l.name, sum(p.weight::integer), GREATEST(l.value, 0)
  FROM live r CROSS JOIN LATERAL jsonb_each_text(r.concurrency -> 'pools') AS p(pool, weight)
  JOIN scheduler.limits l ON l.name = 'pool:' || p.pool AND r.dispatched_at > l.updated_at
 GROUP BY l.name, l.value HAVING sum(p.weight::integer) > GREATEST(l.value, 0)
UNION ALL
SELECT 'group:' || r.job_name || '/' || r.concurrency_group, count(*), 1
  FROM live r WHERE r.concurrency ->> 'policy' IN ('queue', 'replace') AND r.concurrency_group IS NOT NULL
 GROUP BY 1 HAVING count(*) > 1
UNION ALL
SELECT 'run ' || l.id || ' is live and takes nothing of ' || l.key, 1, 0
  FROM limited l WHERE NOT EXISTS (SELECT 1 FROM scheduler.limit_holds h WHERE h.key = l.key AND h.run_id = l.id AND h.token = l.token)
UNION ALL
SELECT 'run ' || r.id || ' has ended and is live', 1, 0
  FROM scheduler.runs_live r JOIN scheduler.runs_history h ON h.id = r.id
 WHERE EXISTS (SELECT 1 FROM scheduler.limit_holds o WHERE o.run_id = r.id)
"""


def limit_faults(connection: psycopg.Connection) -> list[str]:
    """A sentence for each fault of the connection's database; none for one without the tables of limits."""
    known = connection.execute("SELECT to_regclass('scheduler.limit_overrides')").fetchone()
    if known is None or known[0] is None:
        return []
    rows = connection.execute(FAULTS, prepare=True).fetchall()  # The plan is kept with the connection.
    return [f"{what}: {live} live, {allowed} allowed" for what, live, allowed in rows]


def check_limits(connection: psycopg.Connection) -> None:
    """Raises AssertionError when more runs are live than a limit allows, or one is not counted."""
    faults = limit_faults(connection)
    assert not faults, f"limits do not hold at the end of the test: {'; '.join(faults)}"

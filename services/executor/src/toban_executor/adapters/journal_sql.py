"""The tables of an executor's journal (SQLite), and the statements that move rows between the queues and the quarantine."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (token INTEGER, run_id INTEGER, PRIMARY KEY (token, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tombstones (token INTEGER, run_id INTEGER, PRIMARY KEY (token, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (token INTEGER, run_id INTEGER, seq INTEGER, body BLOB,
    PRIMARY KEY (token, run_id, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tickets (token INTEGER, run_id INTEGER, ticket BLOB, PRIMARY KEY (token, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunks (id INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER, run_id INTEGER, stream INTEGER,
    seq_from INTEGER, seq_to INTEGER, lines INTEGER, raw_bytes INTEGER, first_ns INTEGER, last_ns INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS seals (token INTEGER, run_id INTEGER, last_seq INTEGER, PRIMARY KEY (token, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refused_reports (token INTEGER, run_id INTEGER, seq INTEGER, body BLOB, message TEXT,
    PRIMARY KEY (token, run_id, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refused_chunks (id INTEGER PRIMARY KEY, token INTEGER, run_id INTEGER, stream INTEGER,
    seq_from INTEGER, seq_to INTEGER, lines INTEGER, raw_bytes INTEGER, first_ns INTEGER, last_ns INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS refused_seals (token INTEGER, run_id INTEGER, last_seq INTEGER, PRIMARY KEY (token, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heard (guard TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
"""
# The size of all chunks, maintained by triggers: adding up thousands of rows for each read would be slow.
SIZE = """
CREATE TEMP TABLE log_size (bytes INTEGER, refused INTEGER);
INSERT INTO log_size
SELECT (SELECT coalesce(sum(length(data)), 0) FROM main.chunks), (SELECT coalesce(sum(length(data)), 0) FROM main.refused_chunks);
CREATE TEMP TRIGGER chunk_in AFTER INSERT ON main.chunks BEGIN UPDATE log_size SET bytes = bytes + length(NEW.data); END;
CREATE TEMP TRIGGER chunk_out AFTER DELETE ON main.chunks BEGIN UPDATE log_size SET bytes = bytes - length(OLD.data); END;
CREATE TEMP TRIGGER refused_in AFTER INSERT ON main.refused_chunks BEGIN UPDATE log_size SET refused = refused + length(NEW.data); END;
CREATE TEMP TRIGGER refused_out AFTER DELETE ON main.refused_chunks BEGIN UPDATE log_size SET refused = refused - length(OLD.data); END;
"""
# Of attempts whose executor and guard were both killed: their seals never arrive.
DROP_UNUSED_TICKETS = """
DELETE FROM tickets
 WHERE (token, run_id) NOT IN (SELECT token, run_id FROM chunks) AND (token, run_id) NOT IN (SELECT token, run_id FROM seals)
   AND (token, run_id) NOT IN (SELECT token, run_id FROM refused_chunks)
   AND (token, run_id) NOT IN (SELECT token, run_id FROM refused_seals)
"""
REFUSED_REPORTS = "SELECT token, run_id, seq FROM refused_reports"
DROP_REPORT = "DELETE FROM reports WHERE token = ? AND run_id = ? AND seq = ?"
DROP_REFUSED_REPORT = "DELETE FROM refused_reports WHERE token = ? AND run_id = ? AND seq = ?"
DROP_CHUNK = "DELETE FROM chunks WHERE id = ?"
DROP_SEAL = "DELETE FROM seals WHERE token = ? AND run_id = ?"
# A ticket goes with the seal of its attempt, unless some of its lines are in quarantine.
DROP_TICKET = """
DELETE FROM tickets
 WHERE token = ?1 AND run_id = ?2 AND NOT EXISTS (SELECT 1 FROM refused_chunks WHERE token = ?1 AND run_id = ?2)
"""
REFUSE_REPORT = "INSERT OR REPLACE INTO refused_reports VALUES (?, ?, ?, ?, ?)"
REFUSE_CHUNK = "INSERT OR REPLACE INTO refused_chunks SELECT * FROM chunks WHERE id = ?"
REFUSE_SEAL = "INSERT OR REPLACE INTO refused_seals SELECT * FROM seals WHERE token = ? AND run_id = ?"
# Chunks come back in the order of writing, with new numbers, since the shipper reads forward.
REQUEUE = (
    """
INSERT INTO chunks (token, run_id, stream, seq_from, seq_to, lines, raw_bytes, first_ns, last_ns, data)
SELECT token, run_id, stream, seq_from, seq_to, lines, raw_bytes, first_ns, last_ns, data FROM refused_chunks ORDER BY id LIMIT ?1
""",
    "DELETE FROM refused_chunks WHERE id IN (SELECT id FROM refused_chunks ORDER BY id LIMIT ?1)",
    "INSERT OR REPLACE INTO seals SELECT * FROM refused_seals ORDER BY token, run_id LIMIT ?1",
    "DELETE FROM refused_seals WHERE (token, run_id) IN (SELECT token, run_id FROM refused_seals ORDER BY token, run_id LIMIT ?1)",
)

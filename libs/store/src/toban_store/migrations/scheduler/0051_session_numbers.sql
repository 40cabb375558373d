-- migrate:up
-- A number by which a person names a session of theirs: its secret is not shown, and its hash not either.
ALTER TABLE scheduler.user_sessions ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX user_sessions_id ON scheduler.user_sessions (id);

-- migrate:down
ALTER TABLE scheduler.user_sessions DROP COLUMN id;

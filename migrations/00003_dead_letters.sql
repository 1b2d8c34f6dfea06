-- +goose Up

CREATE TABLE dead_letters (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id       bigint,
    off            bigint      NOT NULL,
    record_time    timestamptz,
    created_at     timestamptz NOT NULL,
    resolved_at    timestamptz,
    part           integer     NOT NULL,
    attempts_total integer     NOT NULL,
    life           integer     NOT NULL,
    status         smallint    NOT NULL,
    route          text COLLATE "C" NOT NULL,
    number         text COLLATE "C",
    topic          text        NOT NULL,
    key            bytea,
    value          bytea,
    headers        bytea,
    raw            bytea,
    digest         bytea       NOT NULL,
    reason         text        NOT NULL,
    detail         text        NOT NULL,
    resolved_by    text        NOT NULL,
    note           text        NOT NULL,
    CONSTRAINT dead_letters_status_known CHECK (status IN (1, 2, 3)),
    CONSTRAINT dead_letters_resolved CHECK ((status = 1) = (resolved_at IS NULL))
);

-- A DEAD order has exactly one letter that waits.
CREATE UNIQUE INDEX dead_letters_order ON dead_letters (order_id) WHERE order_id IS NOT NULL AND status = 1;

-- A record that is delivered again is written once. The digest keeps records of a topic that was made anew apart from
-- those of the old one at the same offsets. The bytes of a queue item have no place of their own: the same bytes are
-- written again once the earlier letter is resolved.
CREATE UNIQUE INDEX dead_letters_record ON dead_letters (route, topic, part, off, digest)
    WHERE order_id IS NULL AND (raw IS NULL OR status = 1);

CREATE INDEX dead_letters_waiting ON dead_letters (route, id) WHERE status = 1;

COMMENT ON TABLE dead_letters IS 'Orders and records that need a person. Nothing touches them until somebody requeues or discards them.';
COMMENT ON COLUMN dead_letters.order_id IS 'The DEAD order; null for a record that could not become an order.';
COMMENT ON COLUMN dead_letters.status IS '1 waiting, 2 requeued, 3 discarded.';
COMMENT ON COLUMN dead_letters.number IS 'The business number; null where none could be read.';
COMMENT ON COLUMN dead_letters.headers IS 'As in orders.headers.';
COMMENT ON COLUMN dead_letters.raw IS 'The bytes of a queue item that could not be read; the record''s columns are empty then.';
COMMENT ON COLUMN dead_letters.digest IS 'SHA-256 of the record or the raw bytes; empty for the letter of an order.';
COMMENT ON COLUMN dead_letters.attempts_total IS 'Attempts of the life that ended here.';
COMMENT ON COLUMN dead_letters.resolved_by IS 'The operator who requeued or discarded it.';

-- +goose Down
DROP TABLE dead_letters;

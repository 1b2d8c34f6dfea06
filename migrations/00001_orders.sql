-- +goose Up

-- Fixed-width columns stand first, the widest before the others: no padding between them.
CREATE TABLE orders (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version        bigint      NOT NULL,
    off            bigint      NOT NULL,
    record_time    timestamptz,
    admitted_at    timestamptz NOT NULL,
    last_attempt   timestamptz,
    due            timestamptz,
    updated_at     timestamptz NOT NULL,
    part           integer     NOT NULL,
    attempts       integer     NOT NULL,
    attempts_total integer     NOT NULL,
    lookups        integer     NOT NULL,
    life           integer     NOT NULL,
    state          smallint    NOT NULL,
    phase          smallint    NOT NULL,
    outcome        smallint    NOT NULL,
    route          text COLLATE "C" NOT NULL,
    number         text COLLATE "C" NOT NULL,
    owner          text,
    reason         text        NOT NULL,
    detail         text        NOT NULL,
    topic          text        NOT NULL,
    key            bytea,
    value          bytea,
    headers        bytea,
    UNIQUE (route, number),
    CONSTRAINT orders_state_known CHECK (state BETWEEN 1 AND 5),
    CONSTRAINT orders_phase_while_processing CHECK ((state = 1) = (phase BETWEEN 1 AND 3)),
    CONSTRAINT orders_due_while_processing CHECK ((state = 1) = (due IS NOT NULL))
);

-- The scanner's way in. It is the only index beside the two keys, because each index is written again by each
-- transition. A claim moves due forward, so that a claimed row leaves the range the next claim reads.
CREATE INDEX orders_due ON orders (route, due, id) WHERE state = 1;

-- The claim reads the low end of orders_due, where the dead entries gather: vacuum must come often, and be quick.
-- The share of the table is there because a vacuum reads the indexes whole: a bare threshold would never let it
-- stop on a table of a hundred million rows.
ALTER TABLE orders SET (
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = 200000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_threshold = 50000,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

COMMENT ON TABLE orders IS 'One row per order: a record that carries a business number. Every change is one UPDATE guarded by id, version and state.';
COMMENT ON COLUMN orders.version IS 'Grows by one with every transition and every claim: the fence of the lease.';
COMMENT ON COLUMN orders.off IS 'Offset of the record in its partition.';
COMMENT ON COLUMN orders.record_time IS 'The record''s own timestamp; informative. Null where it has none that fits.';
COMMENT ON COLUMN orders.admitted_at IS 'When the order was first seen.';
COMMENT ON COLUMN orders.last_attempt IS 'When the last attempt was begun; null if none was.';
COMMENT ON COLUMN orders.due IS 'While PROCESSING: when somebody else may act. The lease''s end, or the next try or lookup.';
COMMENT ON COLUMN orders.updated_at IS 'When the row last moved; a renewed lease does not count.';
COMMENT ON COLUMN orders.part IS 'Partition of the record.';
COMMENT ON COLUMN orders.attempts IS 'Attempts of this life that count against the cap.';
COMMENT ON COLUMN orders.attempts_total IS 'Attempts of this life, all of them.';
COMMENT ON COLUMN orders.lookups IS 'Lookups since the last attempt.';
COMMENT ON COLUMN orders.life IS 'How often a person requeued it.';
COMMENT ON COLUMN orders.state IS '1 PROCESSING, 2 SUCCEEDED, 3 FAILED, 4 DEAD, 5 DISCARDED. 2, 3 and 5 are final.';
COMMENT ON COLUMN orders.phase IS 'While PROCESSING: 1 IN_FLIGHT, 2 REPLAYING, 3 UNKNOWN; else 0.';
COMMENT ON COLUMN orders.outcome IS 'Of the last attempt: 1 SUCCEEDED, 2 REJECTED, 3 INVALID, 4 OVERLOADED, 5 NOT_SENT, 6 UNKNOWN, 7 REFUSED, 8 CANCELLED; 0 none.';
COMMENT ON COLUMN orders.number IS 'The business number, sent downstream as Idempotency-Key.';
COMMENT ON COLUMN orders.owner IS 'The worker that holds the lease; null where nobody does.';
COMMENT ON COLUMN orders.reason IS 'Of the last transition: a code of a closed set, empty at admission.';
COMMENT ON COLUMN orders.detail IS 'Free text for people; never parsed.';
COMMENT ON COLUMN orders.key IS 'The record''s key, exact. Null is Kafka''s null, which is not the empty key.';
COMMENT ON COLUMN orders.value IS 'The record''s value, exact. Null is Kafka''s null, which is not the empty value.';
COMMENT ON COLUMN orders.headers IS 'The record''s headers, in order and with repeats: a varint count, then per header the name''s length and bytes, and the value''s length plus one (0 for null) and bytes. Null where there are none.';

-- +goose Down
DROP TABLE orders;

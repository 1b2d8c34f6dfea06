-- +goose Up

-- No foreign key: the rows of both tables are written by one statement, and the check would be paid by each.
CREATE TABLE order_history (
    order_id       bigint      NOT NULL,
    seq            bigint GENERATED ALWAYS AS IDENTITY,
    version        bigint      NOT NULL,
    at             timestamptz NOT NULL,
    attempts_total integer     NOT NULL,
    lookups        integer     NOT NULL,
    life           integer     NOT NULL,
    from_state     smallint    NOT NULL,
    to_state       smallint    NOT NULL,
    phase          smallint    NOT NULL,
    outcome        smallint    NOT NULL,
    kind           text        NOT NULL,
    reason         text        NOT NULL,
    detail         text        NOT NULL,
    actor          text        NOT NULL,
    PRIMARY KEY (order_id, seq),
    CONSTRAINT order_history_kind_known CHECK (kind IN ('transition', 'conflict', 'late'))
);

COMMENT ON TABLE order_history IS 'What became of orders that did not go the plain way. An order whose first attempt was final has no row here: its row in orders tells the whole story.';
COMMENT ON COLUMN order_history.version IS 'The order''s version after the transition; for the other kinds, the version that was found.';
COMMENT ON COLUMN order_history.to_state IS 'The state it went to; for the other kinds, the state the late answer asked for.';
COMMENT ON COLUMN order_history.kind IS 'transition; conflict: an answer that came late and contradicts the final state; late: a final answer that came when the order was a dead letter already. The last two changed nothing.';
COMMENT ON COLUMN order_history.actor IS 'The worker, or the operator.';

-- +goose Down
DROP TABLE order_history;

-- +goose Up

CREATE TABLE breaker_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    generation bigint      NOT NULL,
    window_us  bigint      NOT NULL,
    wait_us    bigint      NOT NULL,
    rate       double precision NOT NULL,
    bound      double precision NOT NULL,
    threshold  double precision NOT NULL,
    samples    bigint      NOT NULL,
    failures   bigint      NOT NULL,
    slow       bigint      NOT NULL,
    worker     text COLLATE "C" NOT NULL,
    route      text COLLATE "C" NOT NULL,
    endpoint   text COLLATE "C" NOT NULL,
    from_state text        NOT NULL,
    to_state   text        NOT NULL,
    reason     text        NOT NULL,
    source     text        NOT NULL,
    mode       text        NOT NULL,
    operator   text        NOT NULL,
    note       text        NOT NULL,
    errors     jsonb       NOT NULL
);

-- A worker that does not know whether an event was written writes it again.
CREATE UNIQUE INDEX breaker_events_once ON breaker_events (worker, route, endpoint, generation);

CREATE INDEX breaker_events_at ON breaker_events (at);

COMMENT ON TABLE breaker_events IS 'Moves of the workers'' breakers and the evidence for them. The writers keep 30 days, and 100000 rows at most.';
COMMENT ON COLUMN breaker_events.at IS 'By the database''s clock.';
COMMENT ON COLUMN breaker_events.generation IS 'Grows with each event of one worker''s breaker.';
COMMENT ON COLUMN breaker_events.window_us IS 'How far back the rule looked, in microseconds.';
COMMENT ON COLUMN breaker_events.wait_us IS 'How long the breaker stays open, in microseconds; 0 where it did not open.';
COMMENT ON COLUMN breaker_events.errors IS 'The last failed calls before the move, oldest first: a list of at most 5.';
COMMENT ON COLUMN breaker_events.operator IS 'Who forced it; empty for everything else, and where nobody could be asked.';

-- +goose Down
DROP TABLE breaker_events;

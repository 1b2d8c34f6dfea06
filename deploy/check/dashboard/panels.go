package dashboard

// backlog: where orders wait, from Kafka to the dead letters.
func backlog() section {
	return section{"Backlog", []line{
		{4, []panel{
			figure("Kafka lag", "Records of the assigned partitions that are not settled yet.", "short",
				`sum by (route) (spillway_kafka_lag_records{@})`, step{1000, watch}, step{100000, bad}),
			figure("Prefetched", "Records that were read and wait for a permit.", "short",
				`sum by (route) (spillway_prefetched_records{@})`),
			figure("In flight", "Attempts and lookups under way, which is permits in use.", "short",
				`sum by (route) (spillway_permits_in_use{@})`),
			figure("Replay queue", "Orders in the replay queue, over all workers: ready, delayed and in flight.", "short",
				`sum by (route) (max by (route, state) (spillway_replay_depth{@route}))`, step{1000, watch}, step{50000, bad}),
			figure("PROCESSING", "Orders without a final state, over all workers.", "short",
				`sum by (route) (max by (route, phase) (spillway_processing_orders{@route}))`, step{1000, watch}, step{50000, bad}),
			figure("Oldest PROCESSING", "Age of the oldest order without a final state.", "s",
				`max by (route) (spillway_oldest_processing_seconds{@route})`, step{300, watch}, step{900, bad}),
			figure("Dead letters", "Dead letters that wait for a person.", "short",
				`max by (route) (spillway_dead_letters{@route})`, step{1, bad}),
			figure("Workers", "Workers that answer.", "short",
				`sum(up{job="spillway"})`),
		}},
		{8, []panel{
			{8, stacked("Kafka and this side of it", "Lag, and the part of it that was read already: it waits for a permit or is under way.", "short",
				query{`sum by (route) (spillway_kafka_lag_records{@}) - sum by (route) (spillway_prefetched_records{@}) - sum by (route) (spillway_live_in_flight{@})`, "{{route}} in Kafka"},
				query{`sum by (route) (spillway_prefetched_records{@})`, "{{route}} prefetched"},
				query{`sum by (route) (spillway_live_in_flight{@})`, "{{route}} in flight"})},
			{8, stacked("Replay queue", "Ready to be sent, waiting for their time, claimed by a worker.", "short",
				query{`max by (route, state) (spillway_replay_depth{@route})`, "{{route}} {{state}}"})},
			{8, stacked("PROCESSING by who is due to act", "IN_FLIGHT: an attempt holds the lease. REPLAYING: the replay queue. UNKNOWN: the compensator.", "short",
				query{`max by (route, phase) (spillway_processing_orders{@route})`, "{{route}} {{phase}}"})},
		}},
		{6, []panel{
			{8, lines("Records a second", "Taken from Kafka.", "cps",
				query{`sum by (route) (rate(spillway_consumed_records_total{@}[$__rate_interval]))`, "{{route}} consumed"},
				query{`sum by (route) (rate(spillway_spilled_orders_total{@}[$__rate_interval]))`, "{{route}} spilled"})},
			{8, lines("Ages", "Of the oldest order in the replay queue, and of the oldest PROCESSING one.", "s",
				query{`max by (route) (spillway_replay_oldest_seconds{@route})`, "{{route}} in replay"},
				query{`max by (route) (spillway_oldest_processing_seconds{@route})`, "{{route}} PROCESSING"})},
			{8, lines("Dead letters", "Waiting, and records that could not become orders, a second.", "short",
				query{`max by (route) (spillway_dead_letters{@route})`, "{{route}} waiting"},
				query{`sum by (route, reason) (rate(spillway_undeliverable_records_total{@}[$__rate_interval]))`, "{{route}} {{reason}} a second"})},
		}},
	}}
}

// limitsAndBreakers: limits in the left half, breakers in the right.
func limitsAndBreakers() section {
	return section{"Limits · Breakers", []line{
		{8, []panel{
			{12, limit(stacked("Permits in use", "By lane, against the limit of all workers shown. At the limit partitions pause.", "short",
				query{`sum by (lane) (spillway_permits_in_use{@})`, "{{lane}}"},
				query{`sum(spillway_permits{@})`, "limit"}), "limit")},
			{12, states("Breakers", "Each worker's breakers: closed lets through, half-open tries, open refuses.",
				query{`max by (route, endpoint, instance) (spillway_breaker_state{@})`, "{{route}} {{endpoint}} {{instance}}"},
				word{"0", "closed", good}, word{"1", "half-open", watch}, word{"2", "open", bad})},
		}},
		{7, []panel{
			{12, limit(lines("Paused partitions", "Assigned partitions that are left out of the fetch, and how many are assigned.", "short",
				query{`sum by (route) (spillway_paused_partitions{@})`, "{{route}} paused"},
				query{`sum(spillway_assigned_partitions{@})`, "assigned"}), "assigned")},
			{6, lines("Moves of breakers", "How often they changed their state.", "short",
				query{`sum by (endpoint, to) (increase(spillway_breaker_moves_total{@}[$__rate_interval]))`, "{{endpoint}} to {{to}}"})},
			{6, lines("Refused", "Attempts and lookups that were not made, a second.", "cps",
				query{`sum by (reason) (rate(spillway_live_outcomes_total{outcome="REFUSED", @}[$__rate_interval]))`, "submit {{reason}}"},
				query{`sum(rate(spillway_compensator_lookups_total{verdict="REFUSED", @}[$__rate_interval]))`, "lookup"})},
		}},
		{8, []panel{
			{12, limit(lines("Prefetch", "Bytes that wait for permits against what should wait, bytes granted to fetches, and everything taken and not settled.", "bytes",
				query{`sum(spillway_prefetched_bytes{@})`, "waiting"},
				query{`sum(spillway_prefetch_target_bytes{@})`, "target"},
				query{`sum(spillway_reserved_bytes{@})`, "granted"},
				query{`sum(spillway_held_bytes{@})`, "held"}), "target")},
			{12, heat("How long calls take", "All calls, live, replayed and lookups.", "s",
				`sum by (le) (rate(spillway_call_seconds_bucket{@}[$__rate_interval]))`)},
		}},
		{7, []panel{
			{6, stacked("What limited, over time", "The part of the workers' time that each constraint bound.", "percentunit",
				query{`avg by (constraint) (rate(spillway_binding_constraint_seconds_total{@}[$__rate_interval]))`, "{{constraint}}"})},
			{6, states("What limits each worker", "The constraint that binds now. Breaker, rate and permits are the downstream's: more workers would not help.",
				query{`max by (route, instance, constraint) (spillway_binding_constraint{constraint!="none", @}) == 1`, "{{route}} {{instance}} {{constraint}}"},
				word{"1", "binds", watch})},
			{6, lines("Calls: 99 of 100 are faster", "By outcome.", "s",
				query{`histogram_quantile(0.99, sum by (le, outcome) (rate(spillway_call_seconds_bucket{@}[$__rate_interval])))`, "{{outcome}}"})},
			{6, lines("Calls: half are faster", "By outcome.", "s",
				query{`histogram_quantile(0.5, sum by (le, outcome) (rate(spillway_call_seconds_bucket{@}[$__rate_interval])))`, "{{outcome}}"})},
		}},
		{6, []panel{
			{6, lines("Pauses", "Partitions paused.", "short",
				query{`sum by (route) (increase(spillway_pauses_total{@}[$__rate_interval]))`, "{{route}}"})},
			{6, lines("Pace of replay", "How many replayed orders may be in flight. It starts at one after a recovery.", "short",
				query{`sum by (route) (spillway_replay_pace{@})`, "{{route}}"})},
			{12, stacked("Calls a second", "By lane and outcome.", "cps",
				query{`sum by (lane, outcome) (rate(spillway_call_seconds_count{@}[$__rate_interval]))`, "{{lane}} {{outcome}}"})},
		}},
	}}
}

// outcomes: what became of the orders.
func outcomes() section {
	return section{"Outcomes", []line{
		{8, []panel{
			{8, stacked("Attempts of fresh records", "By outcome, a second.", "cps",
				query{`sum by (outcome) (rate(spillway_live_outcomes_total{@}[$__rate_interval]))`, "{{outcome}}"})},
			{8, stacked("Replayed orders", "By what they became, a second.", "cps",
				query{`sum by (became) (rate(spillway_replay_finished_total{@}[$__rate_interval]))`, "{{became}}"})},
			{8, stacked("Unknown outcomes, looked up", "By what the order became, a second.", "cps",
				query{`sum by (became) (rate(spillway_compensator_settled_total{@}[$__rate_interval]))`, "{{became}}"})},
		}},
		{7, []panel{
			{6, lines("Reasons", "Why attempts of fresh records did not succeed, a second.", "cps",
				query{`sum by (reason) (rate(spillway_live_outcomes_total{outcome!="SUCCEEDED", @}[$__rate_interval]))`, "{{reason}}"})},
			{6, lines("Lookups", "By verdict, a second.", "cps",
				query{`sum by (verdict) (rate(spillway_compensator_lookups_total{@}[$__rate_interval]))`, "{{verdict}}"})},
			{6, lines("Admission", "New orders, duplicates, and clashes: a number that came again with another payload. A second.", "cps",
				query{`sum by (kind) (rate(spillway_admissions_total{@}[$__rate_interval]))`, "{{kind}}"},
				query{`sum(rate(spillway_skipped_tombstones_total{@}[$__rate_interval]))`, "tombstones skipped"})},
			{6, lines("What should stay at zero", "Each of these has an alert.", "short",
				query{`sum(increase(spillway_conflicts_total{@}[$__rate_interval]))`, "conflicts"},
				query{`sum(increase(spillway_lost_leases_total{@}[$__rate_interval]))`, "leases lost"},
				query{`sum(increase(spillway_kafka_records_lost_total{@}[$__rate_interval]))`, "records lost"},
				query{`sum(increase(spillway_replay_unreadable_total{@}[$__rate_interval]))`, "unreadable replay entries"},
				query{`sum(abs(spillway_conservation_imbalance{@}))`, "records in no place"})},
		}},
	}}
}

// services: how Kafka, Postgres and Redis fare.
func services() section {
	return section{"Kafka and the stores", []line{
		{7, []panel{
			{6, lines("Fetched", "Bytes a second.", "Bps",
				query{`sum by (route) (rate(spillway_kafka_fetched_bytes_total{@}[$__rate_interval]))`, "{{route}}"})},
			{6, lines("Trouble with Kafka", "Fetch errors a second, failed joins a second, partitions that can't be read.", "short",
				query{`sum by (kind) (rate(spillway_kafka_fetch_errors_total{@}[$__rate_interval]))`, "fetch: {{kind}}"},
				query{`sum(rate(spillway_kafka_join_errors_total{@}[$__rate_interval]))`, "join"},
				query{`sum(spillway_kafka_failing_partitions{@})`, "partitions failing"})},
			{6, lines("Commits", "By result, a second.", "cps",
				query{`sum by (result) (rate(spillway_kafka_commits_total{@}[$__rate_interval]))`, "{{result}}"})},
			{6, lines("Generation of the group", "A step is a rebalance.", "short",
				query{`max by (route) (spillway_group_generation{@})`, "{{route}}"})},
		}},
		{7, []panel{
			{6, lines("Orders in one statement", "On average.", "short",
				query{`sum by (op) (rate(spillway_store_batch_size_sum{@}[$__rate_interval])) / sum by (op) (rate(spillway_store_batch_size_count{@}[$__rate_interval]))`, "{{op}}"})},
			{6, lines("Statements", "A second.", "cps",
				query{`sum by (op) (rate(spillway_store_batch_size_count{@}[$__rate_interval]))`, "{{op}}"})},
			{6, lines("Replay queue", "Pushed, refused as full, dropped as moved on, put in again by the compensator. A second.", "cps",
				query{`sum(rate(spillway_replay_pushed_total{@}[$__rate_interval]))`, "pushed"},
				query{`sum(rate(spillway_replay_full_total{@}[$__rate_interval]))`, "full"},
				query{`sum(rate(spillway_replay_dropped_total{@}[$__rate_interval]))`, "dropped"},
				query{`sum(rate(spillway_compensator_rescued_total{@}[$__rate_interval]))`, "rescued"})},
			{6, lines("Memory", "Resident, by worker.", "bytes",
				query{`process_resident_memory_bytes{job="spillway", instance=~"$instance"}`, "{{instance}}"})},
		}},
	}}
}

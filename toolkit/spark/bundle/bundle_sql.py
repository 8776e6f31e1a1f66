"""The SQL of the dashboard, the alerts and the Genie space, over the tables and views of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping

HELD_NOW = (
    "SELECT topic, partition, verdict, outcome, transactional_id, owner, start_offset, "
    "round(held_ms / 60000, 1) AS held_minutes, records_held, cause, remedy, action, observed_at "
    "FROM lso_held_now ORDER BY held_ms DESC NULLS LAST"
)

DATASETS: Mapping[str, str] = {
    "held_now": HELD_NOW,
    "totals": (
        "SELECT count(DISTINCT topic, partition) AS partitions, coalesce(max(held_ms), 0) / 60000 AS longest_minutes, "
        "coalesce(sum(records_held), 0) AS records_waiting, count_if(verdict = 'hanging') AS hanging FROM lso_held_now"
    ),
    "held_by_day": (
        "SELECT date_trunc('DAY', held_from) AS day, topic, sum(coalesce(held_ms, least_ms)) / 60000 AS held_minutes, "
        "count(*) AS holds FROM lso_holds WHERE held_from IS NOT NULL GROUP BY date_trunc('DAY', held_from), topic"
    ),
    "holders": (
        "SELECT topic, transactional_id, producer_id, holds, round(longest_s, 1) AS longest_s, "
        "round(total_s, 1) AS total_s, records_held, last_held_to FROM longest_lso_holds "
        "ORDER BY total_s DESC LIMIT 100"
    ),
    "late": (
        "SELECT topic, partition, transactional_id, owner, verdict, opened_at, expires_at, remedy FROM findings "
        "WHERE is_current AND expires_at < brokers_time ORDER BY expires_at"
    ),
    "incidents": (
        "SELECT date_trunc('DAY', held_from) AS day, coalesce(cause, verdict) AS cause, count(*) AS transactions "
        "FROM findings WHERE held_from IS NOT NULL GROUP BY date_trunc('DAY', held_from), coalesce(cause, verdict)"
    ),
    "endings": (
        "SELECT transactional_id, count_if(ended = 'timeout') AS timeouts, count_if(ended = 'fence') AS fences, "
        "count_if(ended = 'abort') AS aborts, count_if(ended = 'commit') AS commits FROM transaction_history "
        "WHERE kind = 'transaction' GROUP BY transactional_id "
        "HAVING count_if(ended IN ('timeout', 'fence')) > 0 ORDER BY timeouts DESC, fences DESC LIMIT 100"
    ),
}
"""Queries of the dashboard by name; catalog and schema are those of the dashboard."""

HELD_MINUTES = 15
ALERTS: Mapping[str, tuple[str, str, float]] = {
    "lso_held": (
        "held_minutes",
        "SELECT coalesce(max(held_ms), 0) / 60000 AS held_minutes FROM {schema}.lso_held_now",
        HELD_MINUTES,
    ),
    "not_ended_by_kafka": (
        "transactions",
        "SELECT count(*) AS transactions FROM {schema}.lso_held_now WHERE verdict IN ('hanging', 'stuck_ending')",
        0,
    ),
}
"""Column, query and threshold of each alert, which fires above it."""

TABLES = ("lso_held_now", "longest_lso_holds", "lso_holds", "findings", "transaction_history")
"""What the Genie space reads."""

QUESTIONS: Mapping[str, str] = {
    "Which transactions hold an LSO now, and what is safe to do?": HELD_NOW.replace(
        "FROM lso_held_now", "FROM {schema}.lso_held_now"
    ),
    "Which transactional ids held an LSO for more than a minute last month, per topic?": (
        "SELECT topic, transactional_id, count(*) AS holds, max(coalesce(held_ms, least_ms)) / 1000 AS longest_s, "
        "sum(records_held) AS records_waiting FROM {schema}.lso_holds WHERE coalesce(held_ms, least_ms) > 60000 "
        "AND held_from < date_trunc('MONTH', current_date()) "
        "AND (held_to IS NULL OR held_to >= add_months(date_trunc('MONTH', current_date()), -1)) "
        "GROUP BY topic, transactional_id ORDER BY longest_s DESC"
    ),
    "Which applications let their transactions time out most often?": (
        "SELECT transactional_id, count(*) AS timeouts, max(end_time) AS last_one FROM {schema}.transaction_history "
        "WHERE ended = 'timeout' GROUP BY transactional_id ORDER BY timeouts DESC"
    ),
    "What caused the incidents so far?": (
        "SELECT coalesce(cause, verdict) AS cause, count(*) AS transactions, max(held_ms) / 1000 AS longest_s "
        "FROM {schema}.findings WHERE held_from IS NOT NULL GROUP BY coalesce(cause, verdict) "
        "ORDER BY transactions DESC"
    ),
}
"""Questions to the Genie space, each with its query."""

INSTRUCTIONS = (
    "The tables tell which Kafka transaction held the last stable offset (LSO) of a partition, from when to when.",
    "A read_committed consumer receives nothing at or after the LSO, so records wait while one is held.",
    "Times are UTC. held_ms is null while a hold is open in lso_holds: least_ms is then the time held so far.",
    "Never propose to abort a transaction: the columns remedy and action say what is safe, and unknown means that "
    "evidence is missing.",
)
"""What the Genie space has to know."""

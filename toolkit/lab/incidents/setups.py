"""The clusters for incidents."""

from __future__ import annotations

from toolkit.lab.staging import ClusterSetup

EVERYDAY = ClusterSetup(
    name="everyday",
    brokers=1,
    properties={
        # KIP-890 part 1 off; from 4.0 on it also accepts producers that keep their epoch, as those before 4.0 do.
        "transaction.partition.verification.enable": "false",
        "transaction.max.timeout.ms": "3600000",  # as usual for Flink
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    },
)

NEGLECTFUL = ClusterSetup(
    name="neglectful",
    brokers=1,
    properties={
        **EVERYDAY.properties,
        # The coordinator never checks for transactions past their timeout ...
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
        # ... and forgets an idle id after seconds instead of a week.
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    },
)

TWO_PHASE = ClusterSetup(
    name="two-phase",
    brokers=1,
    properties={
        **EVERYDAY.properties,
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",  # InitProducerId 6 is not declared stable up to 4.4
    },
)

REPLICATED = ClusterSetup(
    name="replicated",
    brokers=2,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator, which can be stopped
        "broker.session.timeout.ms": "6000",  # a stopped broker may return this soon
    },
)

STANDSTILL = ClusterSetup(
    name="standstill",
    brokers=2,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # a coordinator without followers
        # A paused follower stays in the ISR, and its session does not expire.
        "replica.lag.time.max.ms": "3600000",
        "broker.session.timeout.ms": "3600000",
    },
)

UNCLEAN = ClusterSetup(
    name="unclean",
    brokers=3,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator
    },
)

"""Files of real brokers, and the output of their kafka-dump-log.sh for them: ``data/README.md`` tells what is in there.

``python -m tests.tools.record_dumps 2.8.2 3.5.2 3.9.2 4.3.1`` records both again.
"""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parent / "data" / "dumps"
HOME = "/var/lib/kafka"  # original paths of the recorded dumps
LOGS = ("orders-0", "page-views-0", "state-0", "__consumer_offsets-0", "__transaction_state-0")
FAKE = (  # a batch line inside a payload, and a record line
    "baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: 9 producerEpoch: 0 "
    "partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 535 "
    "CreateTime: 1664531557631 size: 112 magic: 2 compresscodec: none crc: 3099282109 isvalid: true\n"
    "| offset: 7 CreateTime: 5 keySize: 1 valueSize: 1 sequence: 0 headerKeys: []"
)
TEXTS = {  # options, kinds of files and folders of each run
    "batches": ("", ("log",), LOGS[:3]),
    "records": ("--deep-iteration", ("log", "snapshot", "txnindex", "index", "timeindex"), LOGS[:3]),
    "payloads": ("--print-data-log", ("log",), LOGS[:1]),
    "transactions": ("--transaction-log-decoder", ("log",), ["__transaction_state-0"]),
    "offsets": ("--offsets-decoder", ("log",), ["__consumer_offsets-0"]),
}

"""ApiVersions responses of real brokers, recorded: API key to lowest and highest version."""

import json
from pathlib import Path

RECORDED_APIS: dict[str, dict[int, tuple[int, int]]] = {
    name: {int(key): (low, high) for key, (low, high) in apis.items()}
    for name, apis in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
"""By release, with what is unusual: ``3.9.2 on ZooKeeper``."""

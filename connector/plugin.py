"""The `vllm.general_plugins` entry point: makes `ReStoreConnector` known by name in every process of vLLM.

Engine ring. vLLM may call it more than once, in each of its processes.
"""

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

NAME = "ReStoreConnector"


def register() -> None:
    """Register the connector; a second call does nothing."""
    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, "connector.kv_connector", NAME)

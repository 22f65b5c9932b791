"""What a person who replays can put right. Pure."""


class ReplayError(Exception):
    """A trace, a workload or a setting that cannot be replayed. The message says where, and what to do."""

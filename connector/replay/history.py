"""What a run asked for, as a list of block hashes in the order of time. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Asked:
    """One request.

    Attributes:
        num_tokens: of its prompt.
        usable: hashes of the prompt's blocks that a cache could answer for, head first. The last token is always
            computed, so a last block that it completes is not among them.
        all: hashes of all its full blocks, its answer's too; known once it has ended.
    """

    num_tokens: int
    usable: list[bytes]
    all: list[bytes] = field(default_factory=list[bytes])


class History:
    """Arrivals and ends of requests. `block_size` in tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._by_id: dict[str, Asked] = {}
        self._moments: list[tuple[bool, Asked]] = []

    def arrived(self, request_id: str, num_tokens: int, hashes: Iterable[bytes]) -> None:
        usable = list(hashes)[: (num_tokens - 1) // self.block_size]
        asked = self._by_id[request_id] = Asked(num_tokens, usable)
        self._moments.append((True, asked))

    def ended(self, request_id: str, hashes: Iterable[bytes]) -> None:
        asked = self._by_id.pop(request_id)
        asked.all = list(hashes)
        self._moments.append((False, asked))

    def __iter__(self) -> Iterator[tuple[bool, Asked]]:
        """(True, request) where it arrived, (False, request) where it ended."""
        return iter(self._moments)

    @property
    def num_tokens(self) -> int:
        """Of all prompts."""
        return sum(asked.num_tokens for is_arrival, asked in self._moments if is_arrival)

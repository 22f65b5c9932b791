"""Did two runs get the same work? A digest of each stream's requests, one after another. Pure."""

from array import array
from collections.abc import Set
from hashlib import blake2b

from connector.replay.traffic import Play


class Digest:
    """By stream, the digest of its requests up to each one: their contents and how much each decodes."""

    def __init__(self) -> None:
        self._streams: dict[str, list[bytes]] = {}

    def add(self, play: Play) -> None:
        """The next request of its stream."""
        so_far = self._streams.setdefault(play.stream, [])
        content = array("q", play.tokens).tobytes()
        head = so_far[-1] if so_far else b""
        lengths = array("q", [play.number, len(play.tokens), play.num_output_tokens]).tobytes()
        so_far.append(blake2b(head + lengths + content, digest_size=16).digest())

    def differs(self, other: "Digest", open_streams: Set[str]) -> str | None:
        """The first stream that differs; None where the work is the same. Of streams in `open_streams` only what both
        runs sent is compared."""
        for stream in sorted(self._streams.keys() | other._streams.keys()):
            mine, theirs = self._streams.get(stream, []), other._streams.get(stream, [])
            if stream in open_streams:
                shorter = min(len(mine), len(theirs))
                mine, theirs = mine[:shorter], theirs[:shorter]
            # Each digest has those before it in it, and its request's number.
            if mine[-1:] != theirs[-1:]:
                return stream
        return None

    def hex(self, open_streams: Set[str]) -> str:
        """Of all streams that are not open, together: the same for the same work."""
        whole = blake2b(digest_size=8)
        for stream in sorted(self._streams.keys() - open_streams):
            whole.update(stream.encode() + self._streams[stream][-1])
        return whole.hexdigest()

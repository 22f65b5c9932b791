"""The routes under /restore, one short file a resource. They ask `queries` and `live`; they hold no SQL."""

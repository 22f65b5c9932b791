"""Every read of the log that a view needs, one module a subject, inside the caller's short transaction.

May import the log's tables and the app's models; never a route.
"""

"""Whose prompt took how long: the server's own measure, matched to one request or to none."""

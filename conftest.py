"""Makes this folder the root of the checkout's own tests; `addopts` of its ini loads pytester.

Not `pytest_plugins` here: that is allowed at the root of a run only, and would keep the suites from
being collected out of this checkout by a run in another folder.
"""

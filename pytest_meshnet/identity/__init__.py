"""Who a Shard is: canonical digests, both sides of the identity document, admission, certification.

`node` builds an identity; `declaration` is the admission side, which re-derives it and shares no
code with `node`; `route` and `capability` judge declarations; `certification` and `ledger_file`
remember which recipes a real distributed forward has proven.
"""

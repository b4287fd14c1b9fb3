"""The release question of the locked target, answered from a record: `alpha` or `stop`.

`record` reads and refuses, `criteria` holds one judgement for each key of the sealed contract,
`judge` makes the verdict of them, `collectors` turn a live run into parts of a record.
"""

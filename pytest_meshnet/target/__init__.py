"""The locked target: its pinned documents, the planning over them, and its artifact on disk.

`documents` loads and binds manifest, architecture snapshot and contract; `plan` holds the published
arithmetic and exact placement; `artifact` reads and verifies GGUF files.
"""

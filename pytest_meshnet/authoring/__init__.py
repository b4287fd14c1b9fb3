"""What the author of a runtime works with, from the first descriptor to the last red requirement.

| module | question that it answers |
|---|---|
| `descriptor_file` | `init`: what do I write into my descriptor? |
| `doctor` | what is the first thing that does not work, and what do I do about it? |
| `explain` | what does this requirement want of me, and how does it look on the wire? |
| `replay` | does my runtime do it now? |
| `exchange` | how is an exchange of frames written, drawn and played? |

The canonical exchanges are examples: the tests of a requirement ask more than its exchange shows.
"""

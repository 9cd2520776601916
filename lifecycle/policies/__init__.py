"""Floor 5: policies, each a set of ordinary hooks. They use what every hook may use, and are there to be copied.

hooks = retrying() + compacting(CompactionOptions(model)) + my_hooks
"""

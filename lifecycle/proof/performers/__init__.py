"""The abstract performers: for every effect of the newest revision, what it does to a scene.

They follow the driver's own (`lifecycle.driver.performers`), and are bound to the definition by the same registry, so
that none is missing and none too many. What is left out, in one place:

* Contents. A message is its id, a tool call whether it is parallel, a prompt and a configuration are nothing at all.
* What never changes what follows: snapshots of the context, capacities, chunks, values of tools.
* Several appends of one effect (a claim of both lists, all entered messages) are one step: an append is refused before
  the first of them or not at all. The splices of a cancel and of an edit are not refused.
* An observer of a record can only cancel, for it may not append.
* A denied call stands also for an unknown tool and for arguments that do not fit.
* What waits in an executing call is a hook around its body: a cancel finds the body not begun yet.
* A pool that is drained after a cancel has its appends taken.
* Repair after a crash gives back what the open turn had claimed and the log does not settle (see `outside`).
"""

from . import call, request, tooling
from .agent import AGENT
from .call import CALL

_REST = (call, request, tooling)  # imported for the performers of a step that they register

__all__ = ["AGENT", "CALL"]

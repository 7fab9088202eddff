"""Between engine and sockets: who steps the engine, and what waits for a client that is behind.

The engine knows no clock, the connections know no engine. A `Ticket` is one exchange's hold on the
engine, with the queue of what its client has not been sent yet. `drivers` step the engine: in the
event loop, or in a thread beside it. All queues live on trio's side of the door.
"""

from reference_server.bridge.bridge import Bridge
from reference_server.bridge.ticket import Ticket

__all__ = ["Bridge", "Ticket"]

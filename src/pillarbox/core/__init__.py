"""The core: one pure state machine for every queue, whatever it is stored in.

The functions of `decide` read a queue and return events, `apply.apply(queue, event)` applies one
event to the queue, and `queue.next_deadline(queue)` returns when the next timer is due. No I/O, no
clock, no threads; imports only the standard library and msgspec's structs.
"""

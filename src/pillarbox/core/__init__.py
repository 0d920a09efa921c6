"""The heart: one pure state machine for every queue, whatever it is stored in.

The functions of `decide` read a queue and answer with events, `apply.apply(queue, event)`
changes the queue by one, `queue.next_deadline(queue)` says when something is due by itself.
No I/O, no clock, no threads; the standard library and msgspec's structs only.
"""

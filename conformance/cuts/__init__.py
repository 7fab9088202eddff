"""Stop strings without a model known: where to cut a text, and what became of the cut. Pure.

Positions count code points of a choice's content. `places` chooses stop strings out of a text that
the server itself wrote; `fates` compares what came under a stop string with that text.
"""

"""Independent simulations of the schemes: P ranks in one process, plain torch, from the mathematics.

Nothing here imports penstock. The runtime works with threads, plugins and messages. These files have the
equations of the papers instead, one file per family, so that the cause of a disagreement is in one of two
short texts.
"""

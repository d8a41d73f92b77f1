"""Independent simulations of the schemes: P ranks in one process, plain torch, from the mathematics.

Nothing here imports penstock. What the runtime does with threads, plugins and messages is written here as the
equations of the papers, one file per family, so that a disagreement points at one of two short texts.
"""

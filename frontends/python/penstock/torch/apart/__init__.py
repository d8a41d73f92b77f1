"""Ranks that train apart for several steps and then exchange the distance that they have moved:
Local SGD, DiLoCo and Streaming DiLoCo under any scheme.

rounds.py has the whole sequence, fragment.py the exchange of some parameters, outer.py the outer
step, layers.py the fragments, saved.py the state, and optimizer.py the user's optimizer around it.
"""

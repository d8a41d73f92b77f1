"""The main job: train small models on four ranks under several schemes and compare them.

model.py and data.py are shared with the simulations in tests/oracle: same weights, same data order.
"""

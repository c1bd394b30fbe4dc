"""Plans the place of a model on a machine: predicts memory, estimates speed, chooses parameters.

Pure: it loads nothing and asks no driver.
"""

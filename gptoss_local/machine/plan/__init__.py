"""Plans the place of a model on a machine: predicts memory, estimates speed, chooses parameters.

Pure: model facts + machine facts + options -> plan. It loads nothing and asks no driver.
"""

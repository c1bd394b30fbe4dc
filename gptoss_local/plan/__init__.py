"""Where a model goes on a machine: memory predicted, speed estimated, parameters chosen.

Pure: model facts + machine facts + wishes -> plan. It loads nothing and asks no driver.
"""

"""Tracking of runs in MLflow: each run appears exactly once, even if driver or server die.

driver    delivery.py starts the uploader, and waits for it at the end
uploader   uploader.py, a separate process, which repeatedly lets
          server.py, the only module that imports mlflow, add what MLflow lacks of the run's folder
"""

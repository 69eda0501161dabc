"""Tracking of runs in MLflow: each run appears exactly once, even if the driver or the server dies.

driver    delivery.py starts the uploader, and waits for it at the end
uploader   uploader.py, a separate process, which repeatedly lets
          server.py, the only module that imports mlflow, add the parts of the run's folder that MLflow lacks
"""

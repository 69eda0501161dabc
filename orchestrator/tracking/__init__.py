"""Tracking of runs in MLflow. Each run appears exactly once, even if the driver or the server dies.

driver    delivery.py starts the uploader and waits for it when the run ends
uploader  uploader.py, a separate process, repeatedly calls server.py
          server.py, the only module that imports mlflow, adds the parts of the run's folder that MLflow lacks
"""

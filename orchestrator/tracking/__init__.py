"""Runs as MLflow shows them: each one exactly once, whatever becomes of driver and server.

driver    delivery.py starts the uploader, and waits for it at the end
uploader   uploader.py, a process of its own: again and again it lets
          server.py, the only module that imports mlflow, add what MLflow has not of what the run's folder says
"""

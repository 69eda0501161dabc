"""Images with bounding boxes around their objects: sources, partitions, crops and evaluation."""

"""Images whose objects have known boxes: sources, partitions, crops and evaluation."""

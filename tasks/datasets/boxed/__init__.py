"""Pictures whose objects have known boxes: where they come from, how they are parted, cut and shown to a model."""

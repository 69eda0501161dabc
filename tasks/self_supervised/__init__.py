"""Self-supervised learning on images: criteria, backbones, training, and embeddings of trained encoders."""

"""Self-supervised learning of images: criteria, backbones, training, and the embeddings of trained encoders."""

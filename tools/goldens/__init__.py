"""Golden cases: what TensorFlow answers to given inputs, and the tools that record it."""

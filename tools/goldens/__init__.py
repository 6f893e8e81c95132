"""Golden cases: inputs with TensorFlow's answers, and the tools that record them."""

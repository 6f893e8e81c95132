"""The live differential test against TensorFlow."""

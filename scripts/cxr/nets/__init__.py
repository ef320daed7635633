"""Loading and running neural networks: devices, safetensors, ONNX."""

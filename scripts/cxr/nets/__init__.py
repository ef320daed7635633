"""Load and run neural networks: devices, safetensors, ONNX."""

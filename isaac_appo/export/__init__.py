"""A trained policy outside this package: ONNX, TorchScript and a contract in JSON."""
